"""Why Raftline is behind where it is, shown under the tables of the report.

By the CPU accounts of the same runs, and by how the code goes; renew them with the figures.
"""

REASONS: dict[str, str] = {  # by the name of the table
    "single": (
        "Raftline's node spends about 0.45 ms of Python on a lone publish (parse, propose, write "
        "and sync in another thread, apply, answer), more than the disk's sync takes; C and Go "
        "spend 0.07 to 0.22 ms. What comes together shares that cost: see b and c."
    ),
    "window": (
        "Kafka without fsync waits for no disk. Figures of Raftline and of NATS, RabbitMQ and "
        "Kafka (default) are of different runs here."
    ),
    "bulk": (
        "The servers' CPU is level with Kafka's; Raftline's client spends 3 to 4 µs of Python on a "
        "message, librdkafka 1.3 µs of C, and the load process is what is full."
    ),
    "consume": (
        "The node spends less CPU than Kafka's; the client makes a Python object of each message "
        "in Python, librdkafka in C."
    ),
    "work": (
        "The nodes spend the least CPU of all; the workers' share is Python. Redis acks the "
        "messages of a read with one command."
    ),
    "paced": (
        "At this rate nothing comes together: each message is three requests (send, receive, "
        "settle) and two writes through the log (itself; its lease with its ack), more than 1 ms "
        "of the node's Python."
    ),
    "start": ("Python and its modules: 60 MB and most of a second before the first byte is read."),
}
