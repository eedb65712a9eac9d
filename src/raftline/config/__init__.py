"""Settings of a node: the tree, where values come from, what must hold between them."""
