"""Safe parsing of untrusted XML: no network access, no entity expansion, no external files."""

from lxml import etree

MAX_TREE_BYTES = 1_250_000_000
"""Maximum memory of a parsed document. Ordinary articles may have 30 MB of XML and more."""

# Sizes of libxml2's structures plus malloc overhead: an element, a text, an attribute with its
# text.
_ELEMENT_BYTES, _TEXT_BYTES, _ATTRIBUTE_BYTES = 128, 160, 272


def parse_xml(data: bytes) -> etree._Element:
    """Return the root of a document, without comments and processing instructions.

    Raises:
        etree.XMLSyntaxError: If it is malformed, or deeper or larger than libxml2 allows
            (``huge_tree`` stays off, so deep nesting, huge nodes and entity bombs are rejected), or
            if its tree would take more than ``MAX_TREE_BYTES``, estimated before parsing.
    """
    need = tree_bytes(data)
    if need > MAX_TREE_BYTES:
        raise etree.XMLSyntaxError(f"its tree would take {need / 1e6:.0f} MB", None, 0, 0)
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        remove_comments=True,
        remove_pis=True,
        huge_tree=False,
    )
    return etree.fromstring(data, parser)


def tree_bytes(data: bytes) -> int:
    """Return an upper bound of the memory of a document's tree in bytes, without parsing it."""
    tags = data.count(b"<")
    elements = tags - data.count(b"</")
    texts = tags - data.count(b"><") + data.count(b"&")
    attributes = data.count(b"=")
    nodes = elements * _ELEMENT_BYTES + texts * _TEXT_BYTES + attributes * _ATTRIBUTE_BYTES
    return nodes + 3 * len(data)
