"""The client's core over gRPC: ``raftline.connect("grpc://...")``. Loaded only where asked for."""
