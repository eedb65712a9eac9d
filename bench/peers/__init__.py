"""The same load on the systems people would use instead."""
