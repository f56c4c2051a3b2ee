"""The same requests to Apache Kafka and to Millpond, and a table of where their answers differ.

`python -m tests.interop.beside_kafka [SCENE ...]`. A scene is a conversation with one broker; `sides.py` writes down
what it was answered, without what must differ (ids, addresses, words), and `__main__.py` compares. What is left
different on purpose stands in `deliberate.py`, with the reason.
"""
