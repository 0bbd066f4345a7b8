"""Reading papers: bytes in, dataclasses out. Nothing here touches storage or pixels."""
