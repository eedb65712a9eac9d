"""What other queues' clients say, translated into the calls of the native API."""
