import pytest

from biovl.core.errors import SourceError
from biovl.enrich.client import EntrezClient
from biovl.enrich.config import EntrezSettings
from biovl.enrich.searching import esearch
from tests.enrich.eutils import Eutils, half_an_xml, with_body


def client_of(service: Eutils) -> EntrezClient:
    return EntrezClient(EntrezSettings(url=service.url, requests_per_s=1000, backoff_s=0.01))


def test_all_ids_of_pmc_are_found_page_after_page():
    with Eutils() as service, client_of(service) as client:
        service.searches["pmc", "lung"] = list(range(25_000, 0, -1))
        service.next_answers(None, half_an_xml)
        assert esearch(client, "pmc", "lung") == [str(n) for n in range(25_000, 0, -1)]
        # Three pages, one of them twice.
        assert [asked.parameters["retstart"] for asked in service.requests] == [
            ["0"], ["9999"], ["9999"], ["19998"],
        ]  # fmt: skip
        assert service.requests[3].parameters["WebEnv"] == ["MCID_1"]


def test_more_than_pubmed_gives_are_found_in_windows_of_their_dates():
    with Eutils() as service, client_of(service) as client:
        service.searches["pubmed", "lung"] = list(range(1, 24_001))
        service.entered = {number: f"{1990 + number % 30}/07/18" for number in range(1, 24_001)}
        found = esearch(client, "pubmed", "lung")
        assert sorted(map(int, found)) == list(range(1, 24_001))
        assert len(service.requests) < 40
        # The service has the oldest first here; a limit keeps those that entered PubMed last.
        entered = [service.entered[int(n)] for n in esearch(client, "pubmed", "lung", limit=12_000)]
        assert len(entered) == 12_000
        assert min(entered) == "2005/07/18"


def test_more_of_one_day_than_can_be_had_is_refused():
    with Eutils() as service, client_of(service) as client:
        service.searches["pubmed", "lung"] = list(range(1, 10_002))
        service.entered = dict.fromkeys(range(1, 10_002), "2003/07/18")
        with pytest.raises(SourceError, match=r"10,001 .*2003-07-18"):
            esearch(client, "pubmed", "lung")


def test_a_search_that_finds_nothing_finds_no_ids():
    with Eutils() as service, client_of(service) as client:
        service.searches["pmc", "lung"] = []
        assert esearch(client, "pmc", "lung") == []


def test_a_search_that_is_refused_says_why():
    with (
        Eutils() as service,
        client_of(service) as client,
        pytest.raises(SourceError, match="Empty term"),
    ):
        esearch(client, "pmc", "")


def test_an_answer_in_json_is_read_too():
    body = b'{"header":{},"esearchresult":{"count":"2","retmax":"2","retstart":"0","idlist":["5","3"]}}'
    with Eutils() as service, client_of(service) as client:
        service.next_answers(with_body(body))
        assert esearch(client, "pmc", "lung") == ["5", "3"]


def test_no_more_is_asked_for_than_is_wanted():
    with Eutils() as service, client_of(service) as client:
        service.searches["pubmed", "lung"] = list(range(1, 24_001))
        assert esearch(client, "pubmed", "lung", limit=3) == ["1", "2", "3"]
        assert [asked.parameters["retmax"] for asked in service.requests] == [["3"]]
        service.searches["pmc", "lung"] = list(range(1, 90_001))
        assert len(esearch(client, "pmc", "lung", limit=12_000)) == 12_000
        assert len(service.requests) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"<eSearchResult><Count>1</Count><IdList><Id>5</Id></IdList><ErrorList><PhraseNotFound>glioblastma"
        b"</PhraseNotFound></ErrorList><WarningList><PhraseIgnored>of</PhraseIgnored><QuotedPhraseNotFound>"
        b'"lung x"</QuotedPhraseNotFound></WarningList></eSearchResult>',
        b'{"esearchresult":{"count":"1","idlist":["5"],"errorlist":{"phrasesnotfound":["glioblastma"]},'
        b'"warninglist":{"phrasesignored":["of"],"quotedphrasesnotfound":["\\"lung x\\""]}}}',
    ],
)
def test_phrases_that_the_service_leaves_out_of_a_search_are_a_warning(body, caplog):
    with Eutils() as service, client_of(service) as client:
        service.next_answers(with_body(body))
        assert esearch(client, "pubmed", "glioblastma") == ["5"]
    (record,) = caplog.records
    assert record.args == ("glioblastma", "pubmed", "'glioblastma', '\"lung x\"'")
