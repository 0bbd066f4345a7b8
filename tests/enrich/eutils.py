"""A stand-in for NCBI's E-utilities on loopback: efetch, elink and esearch, faults included.

    with Eutils() as service:
        service.add(article(11, mesh=[("Humans", "D006801", "N")]))
        service.next_answers(too_many(retry_after="1"))
        …                                    # ask service.url
        service.requests[0].parameters["id"]

A fault takes the answer that was due and returns what is sent instead.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

ARTICLES = (
    '<?xml version="1.0" ?>\n<!DOCTYPE PubmedArticleSet PUBLIC '
    '"-//NLM//DTD PubMedArticle, 1st January 2025//EN" '
    '"https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">\n'
)
LINKS = (
    '<?xml version="1.0" encoding="UTF-8" ?>\n<!DOCTYPE eLinkResult PUBLIC '
    '"-//NLM//DTD elink 20101123//EN" '
    '"https://eutils.ncbi.nlm.nih.gov/eutils/dtd/20101123/elink.dtd">\n'
)
NO_IDS = (
    "<eFetchResult><ERROR>ID list is empty! Possibly it has no correct IDs.</ERROR></eFetchResult>"
)
MOST_OF_PUBMED = 9_999


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    at: float
    """Seconds, growing."""
    method: str
    utility: str
    """efetch, elink, esearch"""
    query: str
    """What stood in the address."""
    parameters: Mapping[str, list[str]]
    headers: Mapping[str, str]

    @property
    def ids(self) -> list[int]:
        """Return the PMIDs asked for."""
        return [int(pmid) for text in self.parameters.get("id", []) for pmid in text.split(",")]


@dataclass(frozen=True)
class Answer:
    """What is sent."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    sent_bytes: int | None = None
    """Of the body, before the connection is closed; None: all."""


Fault = Callable[[Answer], Answer]


def too_many(retry_after: str | None = "0", status: int = 429) -> Fault:
    """Above the limit, as NCBI says it."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    body = b'{"error":"API rate limit exceeded","api-key":"10.0.0.1","count":"4","limit":"3"}\n'
    return lambda due: Answer(body, status, headers)


def with_body(body: bytes, status: int = 200) -> Fault:
    """Any body instead."""
    return lambda due: Answer(body, status)


def error_text(text: str) -> Fault:
    """An error with status 200."""
    return with_body(f"<eFetchResult>\n\t<ERROR>{escape(text)}</ERROR>\n</eFetchResult>".encode())


def web_page(due: Answer) -> Answer:
    """The page that stands before the service."""
    return Answer(
        b"<!DOCTYPE html><html><head><meta charset=utf-8><title>NCBI</title><body>Sorry<br>"
    )


def unavailable(due: Answer) -> Answer:
    """A server behind it has died."""
    return Answer(b"<html><body><h1>502 Bad Gateway</h1></body></html>", 502)


def cut_short(due: Answer) -> Answer:
    """The connection ends before the body does."""
    return replace(due, sent_bytes=len(due.body) // 2)


def half_an_xml(due: Answer) -> Answer:
    """The body ends in the middle, and says so nowhere."""
    return replace(due, body=due.body[: len(due.body) // 2])


def slow(seconds: float) -> Fault:
    """The answer that is due, late."""

    def wait(due: Answer) -> Answer:
        time.sleep(seconds)
        return due

    return wait


def held_until(event: threading.Event) -> Fault:
    """The answer that is due, when an event has happened."""

    def wait(due: Answer) -> Answer:
        event.wait(600)
        return due

    return wait


def billion_laughs(due: Answer) -> Answer:
    """XML that grows without end where it is expanded."""
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    return _declaring(due, f'<!ENTITY l0 "lol">{levels}', "&l9;")


def external_entity(due: Answer) -> Answer:
    """XML that would read a file of whoever parses it."""
    return _declaring(due, '<!ENTITY x SYSTEM "file:///etc/hostname">', "&x;")


def _declaring(due: Answer, declared: str, used: str) -> Answer:
    text = due.body.decode()
    begin = text.index("<PubmedArticleSet>")
    body = text[begin:].replace("<DescriptorName", f"<Note>{used}</Note><DescriptorName", 1)
    return replace(due, body=f"<!DOCTYPE PubmedArticleSet [{declared}]>{body}".encode())


def and_also(more: str) -> Fault:
    """A record that nobody asked for, before those that are due."""
    mark = b"<PubmedArticleSet>"
    return lambda due: replace(due, body=due.body.replace(mark, mark + more.encode(), 1))


def article(
    pmid: int,
    *,
    mesh: Iterable[tuple[str, str, str]] = (),
    mesh_xml: str = "",
    types: Iterable[str] = ("Journal Article",),
    keywords: Iterable[str] = (),
    issued: str = "<Year>2003</Year><Month>Dec</Month>",
    electronic: str = "",
    history: str = "",
    notices: Iterable[str] = (),
    doi: str = "",
    pmcid: str = "",
    version: int = 1,
) -> str:
    """Return a record as efetch writes it."""
    headings = "".join(
        f'<MeshHeading><DescriptorName UI="{ui}" MajorTopicYN="{major}">{escape(name)}'
        "</DescriptorName></MeshHeading>"
        for name, ui, major in mesh
    )
    headings += mesh_xml
    lists = f"<MeshHeadingList>{headings}</MeshHeadingList>" if headings else ""
    lists += "".join(
        f'<CommentsCorrectionsList><CommentsCorrections RefType="{kind}"><RefSource>Of another'
        '</RefSource><PMID Version="1">99999999</PMID></CommentsCorrections></CommentsCorrectionsList>'
        for kind in notices
    )
    words = "".join(f'<Keyword MajorTopicYN="N">{word}</Keyword>' for word in keywords)
    lists += f'<KeywordList Owner="NOTNLM">{words}</KeywordList>' if words else ""
    ids = f'<ArticleId IdType="pubmed">{pmid}</ArticleId>'
    ids += f'<ArticleId IdType="doi">{escape(doi)}</ArticleId>' if doi else ""
    ids += f'<ArticleId IdType="pmc">{pmcid}</ArticleId>' if pmcid else ""
    online = f'<ArticleDate DateType="Electronic">{electronic}</ArticleDate>' if electronic else ""
    named = "".join(f'<PublicationType UI="D0">{escape(kind)}</PublicationType>' for kind in types)
    return (
        f'<PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="{version}">{pmid}</PMID>'
        "<DateRevised><Year>2020</Year><Month>01</Month><Day>01</Day></DateRevised>"
        f"<Article><Journal><JournalIssue><PubDate>{issued}</PubDate></JournalIssue></Journal>"
        f"<ArticleTitle>A title.</ArticleTitle><PublicationTypeList>{named}</PublicationTypeList>"
        f"{online}</Article>{lists}</MedlineCitation><PubmedData><History>{history}</History>"
        f"<PublicationStatus>ppublish</PublicationStatus><ArticleIdList>{ids}</ArticleIdList>"
        '<ReferenceList><Reference><ArticleIdList><ArticleId IdType="pubmed">88888888</ArticleId>'
        '<ArticleId IdType="doi">10.1/of.a.reference</ArticleId></ArticleIdList></Reference>'
        "</ReferenceList></PubmedData></PubmedArticle>"
    )


def book(pmid: int, *, year: str = "1993", keywords: Iterable[str] = ()) -> str:
    """Return a chapter of a book as efetch writes it."""
    words = "".join(f"<Keyword>{word}</Keyword>" for word in keywords)
    return (
        f'<PubmedBookArticle><BookDocument><PMID Version="1">{pmid}</PMID><ArticleIdList>'
        '<ArticleId IdType="bookaccession">NBK1</ArticleId></ArticleIdList><Book><Publisher/>'
        f"<PubDate><Year>{year}</Year></PubDate></Book><ArticleTitle>A chapter</ArticleTitle>"
        f'<PublicationType UI="D016454">Review</PublicationType><KeywordList>{words}</KeywordList>'
        "</BookDocument></PubmedBookArticle>"
    )


class Eutils:
    """The service, from ``with`` to its end; everything may be changed while it runs."""

    def __init__(self) -> None:
        self.records: dict[int, str] = {}
        """As efetch writes them, by PMID."""
        self.merged: dict[int, int] = {}
        """PMIDs that are answered with the record of another."""
        self.cited_by: dict[int, list[int]] = {}
        self.searches: dict[tuple[str, str], list[int]] = {}
        """What a term of a database finds."""
        self.entered: dict[int, str] = {}
        """When ids came into PubMed: ``2003/07/18``."""
        self.requests: list[Asked] = []
        self.poisoned: dict[int, Fault] = {}
        """What happens to every answer to requests for these ids."""
        self.always: Fault | None = None
        self.answered = 0
        self._next: deque[Fault | None] = deque()
        self._lock = threading.Lock()

    def add(self, *records: str) -> None:
        """Put records that ``article`` and ``book`` return."""
        for record in records:
            self.records[int(record.partition('<PMID Version="')[2][3:].partition("<")[0])] = record

    def next_answers(self, *faults: Fault | None) -> None:
        """Send these instead of the next answers, one after another."""
        self._next.extend(faults)

    def asked(self, utility: str) -> list[Asked]:
        """Return the requests of a utility."""
        return [asked for asked in self.requests if asked.utility == utility]

    def __enter__(self) -> "Eutils":
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._do("")

            def do_POST(self) -> None:
                self._do(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

            def _do(self, body: str) -> None:
                # When it came, not when it is answered.
                at, address = time.monotonic(), urlsplit(self.path)
                asked = Asked(
                    at=at,
                    method=self.command,
                    utility=address.path.rpartition("/")[2].removesuffix(".fcgi"),
                    query=address.query,
                    parameters=parse_qs("&".join(filter(None, [address.query, body]))),
                    headers=dict(self.headers),
                )
                self._send(service._answer(asked))

            def _send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body[: answer.sent_bytes])
                self.close_connection = answer.sent_bytes is not None

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/entrez/eutils"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, asked: Asked) -> Answer:
        due = getattr(self, f"_{asked.utility}", _unknown)(asked)
        with self._lock:
            self.requests.append(asked)
            fault = self._next.popleft() if self._next else None
        if asked.utility in ("efetch", "elink"):
            poison = next(
                (self.poisoned[pmid] for pmid in asked.ids if pmid in self.poisoned), None
            )
            fault = fault or poison
        fault = fault or self.always
        answer = due if fault is None else fault(due)
        with self._lock:
            self.answered += 1
        return answer

    def _efetch(self, asked: Asked) -> Answer:
        if asked.parameters.get("db") != ["pubmed"] or asked.parameters.get("retmode") != ["xml"]:
            return Answer(b"<eFetchResult><ERROR>bad parameters</ERROR></eFetchResult>", 400)
        # Each once, unknown ones left out, in an order of the service's own.
        wanted = {self.merged.get(pmid, pmid) for pmid in asked.ids}
        found = [
            self.records[pmid] for pmid in sorted(wanted, reverse=True) if pmid in self.records
        ]
        if not found:
            return Answer(NO_IDS.encode(), 400)
        return Answer(f"{ARTICLES}<PubmedArticleSet>{''.join(found)}</PubmedArticleSet>".encode())

    def _elink(self, asked: Asked) -> Answer:
        # A comma joins ids to one set.
        sets = [[int(pmid) for pmid in text.split(",")] for text in asked.parameters.get("id", [])]
        return Answer(
            f"{LINKS}<eLinkResult>{''.join(map(self._links, sets))}</eLinkResult>".encode()
        )

    def _links(self, pmids: Sequence[int]) -> str:
        ids = "".join(f"<Id>{pmid}</Id>" for pmid in pmids)
        citing = [number for pmid in pmids for number in self.cited_by.get(pmid, [])]
        links = "".join(f"<Link><Id>{number}</Id></Link>" for number in citing)
        found = (
            f"<LinkSetDb><DbTo>pubmed</DbTo><LinkName>pubmed_pubmed_citedin</LinkName>{links}"
            "</LinkSetDb>"
        )
        return (
            f"<LinkSet><DbFrom>pubmed</DbFrom><IdList>{ids}</IdList>{found if citing else ''}"
            "</LinkSet>"
        )

    def _esearch(self, asked: Asked) -> Answer:
        def one(name: str, default: str) -> str:
            return asked.parameters.get(name, [default])[0]

        db, term = one("db", "pubmed"), one("term", "")
        if (db, term) not in self.searches:
            return _search("<ERROR>Empty term and query_key - nothing todo</ERROR>")
        ids = self.searches[db, term]
        if "mindate" in asked.parameters:
            first, last = one("mindate", ""), one("maxdate", "")
            ids = [number for number in ids if first <= self.entered[number] <= last]
        start, most = int(one("retstart", "0")), min(int(one("retmax", "20")), 10_000)
        end = start + most
        if db == "pubmed":
            if start >= MOST_OF_PUBMED:
                return _search(
                    "<ERROR>Search Backend failed: Exception:\n'retstart' cannot be larger than "
                    f"{MOST_OF_PUBMED - 1}.</ERROR>"
                )
            end = min(end, MOST_OF_PUBMED)
        page = "".join(f"<Id>{number}</Id>" for number in ids[start:end])
        history = "<QueryKey>1</QueryKey><WebEnv>MCID_1</WebEnv>"
        kept = history if one("usehistory", "") == "y" else ""
        return _search(
            f"<Count>{len(ids)}</Count><RetMax>{len(ids[start:end])}</RetMax>"
            f"<RetStart>{start}</RetStart>{kept}<IdList>{page}</IdList>"
        )


def _search(content: str) -> Answer:
    return Answer(
        f'<?xml version="1.0" encoding="UTF-8" ?>\n<eSearchResult>{content}</eSearchResult>'.encode()
    )


def _unknown(asked: Asked) -> Answer:
    return Answer(b"not found", 404)
