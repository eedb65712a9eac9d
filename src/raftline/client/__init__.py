"""The client's core: calls over HTTP to any node, with another node tried when one is gone."""
