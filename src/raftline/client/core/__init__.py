"""The client without I/O: batching, routing, retries, leases. Clock and network are handed in.

Everything here runs on one thread, with callbacks. The shells around it (client/line.py,
client/async_line.py) bring the sockets, the waiting and the threads.
"""
