"""Consensus: a sans-I/O Raft core. It knows entries and replicas, not messages and nodes.

The order of the layers, lowest first: ``quorum``, ``rpc``, ``conf_change``, ``storage``, ``log``,
``progress``, ``members`` hold the parts; ``state``, ``reads``, ``replication``, ``membership``,
``election`` each add one duty to the replica; ``core`` is the replica a caller drives.

The duty of a caller, in one turn::

    raft.step(rpc) / raft.propose([data]) / raft.tick()
    if raft.has_ready():
        ready = raft.ready()
        send ready.rpcs at once                    # nothing in them claims durability
        write ready.append, then send or step its responses
        apply ready.apply.entries, then step its responses
"""
