"""gateways."""
