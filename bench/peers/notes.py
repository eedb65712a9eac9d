"""Why Raftline is behind where it is, shown under the tables of the report.

By the CPU accounts of the same runs, and by how the code goes; renew them with the figures.
"""

REASONS: dict[str, str] = {  # by the name of the table
    "single": (
        "Raftline's node spends about 0.35 ms of CPU on a lone publish (parse, propose, write and "
        "sync in another thread, apply, answer), more than the disk's sync takes; Redis and "
        "beanstalkd, in C, spend 0.1 ms. Kafka (default) waits for no disk. What comes together "
        "shares that cost: see b and c."
    ),
    "window": (
        "Kafka (default) waits for no disk, and its client is C: by the same client Raftline, "
        "which does wait, has 0.8 of its rate with half of its servers' CPU."
    ),
    "bulk": (
        "The node spends no more CPU than Kafka's; Raftline's client spends 2.8 µs of Python on a "
        "message, librdkafka 1.0 to 1.6 µs of C, and the load process is what is full. By "
        "librdkafka Raftline is ahead of Kafka with fsync and level with Kafka without."
    ),
    "consume": (
        "The node spends as little CPU as Kafka's and half of what Redis spends; the client makes "
        "a Python object of each message in Python, librdkafka and hiredis in C."
    ),
    "work": (
        "The node spends the least CPU of all; the workers' share is Python. Redis acks the "
        "messages of a read with one command; Kafka's share groups ack by ranges, in C."
    ),
    "paced": (
        "At this rate nothing comes together: each message is three requests (send, receive, "
        "settle) and two writes through the log (itself; its lease with its ack), 1 ms of the "
        "node's CPU. RabbitMQ, Redis and beanstalkd push a message to a worker that waits, and "
        "sync less: RabbitMQ no ack at all."
    ),
    "start": "Python and its modules: that memory is there before the first byte is read.",
}
