"""The Kafka protocol: unmodified Kafka clients on a node."""
