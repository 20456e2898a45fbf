"""Arrays <-> messages of the wire contract: the only place of the client that touches protobuf."""
