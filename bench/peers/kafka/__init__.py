"""Beside Apache Kafka."""
