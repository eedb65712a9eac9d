"""The gRPC gateway: raftline.v1 and the queue.v1 of sreekar2307/queue."""
