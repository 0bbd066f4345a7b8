"""Actions of reviewers, independent of HTTP: get a cluster, vote, skip, go back."""

import base64
from dataclasses import dataclass
from functools import cached_property

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from biovl.concepts.taxonomy import Taxonomy, load_taxonomy
from biovl.concepts.votes import ReviewVote, read_votes, validate_vote, write_votes
from biovl.core.errors import ConfigError
from serve.http.problems import Problem
from serve.review import assignment, messages, store
from serve.review.assignment import Offer, ReviewerState, Rules
from serve.review.concepts import Cluster, Member, ReviewConcepts, practice_of
from serve.review.settings import ReviewSettings
from serve.review.tables import Database, votes
from serve.review.ties import TieList, read_ties

_RECENT = 50
_REFUSED_MOST = 1_000


@dataclass(frozen=True)
class Desk:
    """Actions of reviewers on a review: its clusters, taxonomy and database. Thread-safe."""

    settings: ReviewSettings
    concepts: ReviewConcepts
    taxonomy: Taxonomy
    database: Database
    rules: Rules

    def known_name(self, name: str) -> str:
        """Return a reviewer's name as spelled first; names are case-insensitive."""
        with self.database.reading() as connection:
            spelling = store.known_name(connection, name)
        if spelling is not None:
            return spelling
        with self.database.writing() as connection:
            return store.store_name(connection, name)

    def begin(self, reviewer: str) -> messages.Review:
        """Return the data that the web page needs at the start."""
        with self.database.reading() as connection:
            now = self._standing(connection, reviewer)
            recent = self._recent(connection, reviewer)
        taxonomy = self.taxonomy
        return messages.Review(
            reviewer=reviewer,
            concepts=self.concepts.fingerprint[:12],
            panels=[
                messages.PanelAnswer.model_validate(one, from_attributes=True)
                for one in taxonomy.panels
            ],
            concepts_by_global={name: list(below) for name, below in taxonomy.concepts.items()},
            aliases=dict(taxonomy.aliases),
            votes_per_cluster=self.settings.votes_per_cluster,
            reservation_s=self.settings.reservation_s,
            progress=self._progress(now),
            recent=recent,
        )

    def next(self, reviewer: str, passed: messages.Place | None) -> messages.NextAnswer:
        """Assign the next cluster to a reviewer, and reserve it; ``passed`` is the one to skip."""
        skipped = None if passed is None else self.cluster(passed.cluster_id, passed.key)
        with self.database.writing() as connection:
            if skipped is not None and passed is not None:
                assignment.skip(connection, skipped, reviewer, practice=passed.practice)
            now = self._standing(connection, reviewer)
            offer = assignment.choose(self.concepts.clusters.values(), self.rules, now)
            if offer is not None and offer.kind != "practice":
                cluster = self.concepts.clusters[offer.cluster_id]
                assignment.reserve(connection, cluster, reviewer, self.settings.reservation_s)
            own = None if offer is None else self._own(connection, reviewer, offer)
        sheet = None if offer is None else self._sheet(offer, own)
        return messages.NextAnswer(cluster=sheet, progress=self._progress(now))

    def view(self, reviewer: str, place: messages.Place) -> messages.Sheet:
        """Return a cluster with a reviewer's vote on it, without reserving it."""
        cluster = self.cluster(place.cluster_id, place.key)
        with self.database.reading() as connection:
            now = self._standing(connection, reviewer)
            offer = assignment.offer(cluster.cluster_id, self.rules, now, practice=place.practice)
            own = self._own(connection, reviewer, offer)
        return self._sheet(offer, own)

    def hold(self, reviewer: str, place: messages.Place) -> bool:
        """Extend a reviewer's reservation of a cluster, also one that has expired.

        Returns:
            False if another reviewer has taken the slot, or this one reserved another cluster.
        """
        cluster = self.cluster(place.cluster_id, place.key)
        reservation_s = self.settings.reservation_s
        with self.database.writing() as connection:
            if assignment.renew(connection, cluster, reviewer, reservation_s):
                return True
            now = self._standing(connection, reviewer)
            may_reserve = assignment.may_reserve(cluster.cluster_id, self.rules, now)
            if place.practice or now.reserved or not may_reserve:
                return False
            assignment.reserve(connection, cluster, reviewer, reservation_s)
            return True

    def vote(self, reviewer: str, request: messages.VoteRequest) -> messages.VoteAnswer:
        """Save a reviewer's vote on a cluster.

        Raises:
            Problem: 404 if the cluster does not exist; 409 if it has changed, has no free slot, or
                the reviewer may not vote on it; 422 for names that are not in the taxonomy.
        """
        cluster = self.cluster(request.cluster_id, request.key)
        given = ReviewVote(
            cluster_id=cluster.cluster_id,
            key=cluster.key,
            reviewer=reviewer,
            panel_type=request.panel_type,
            panel_subtype=request.panel_subtype,
            global_concepts=tuple(request.global_concepts),
            local_concepts=tuple(request.local_concepts),
            practice=request.practice,
            created=store.now(),
        )
        try:
            vote = validate_vote(given, self.taxonomy)
        except ConfigError as error:
            raise Problem(422, "invalid-vote", str(error)) from None
        with self.database.writing() as connection:
            now = self._standing(connection, reviewer)
            self._check_place(vote, now)
            offer = assignment.offer(cluster.cluster_id, self.rules, now, practice=request.practice)
            is_again = offer.kind == "again"
            store.save(connection, vote, self.taxonomy, is_again=is_again, source="page")
            assignment.note_answered(connection, vote, self.rules)
            now = self._standing(connection, reviewer)
        return messages.VoteAnswer(created=vote.created, progress=self._progress(now))

    def recount_votes(self) -> None:
        """Recount the votes of all clusters at the start: the taxonomy may have changed."""
        with self.database.writing() as connection:
            store.recount_votes(connection, self.taxonomy)

    def export_csv(self) -> bytes:
        """Return all current votes as a CSV file."""
        with self.database.reading() as connection:
            return write_votes(store.export_votes(connection))

    def import_csv(self, data: bytes) -> messages.ImportAnswer:
        """Import the votes of a CSV file.

        Raises:
            ConfigError: If the file is not a CSV file of votes.
        """
        brought, broken = read_votes(data)
        refused = [messages.RefusedRow(line=line, reason=reason) for line, reason in broken]

        def refuse(vote: ReviewVote, reason: str) -> None:
            refused.append(
                messages.RefusedRow(
                    cluster_id=vote.cluster_id, reviewer=vote.reviewer[:64], reason=reason
                )
            )

        with self.database.writing() as connection:
            done = store.import_votes(
                connection, brought, self.taxonomy, keys=self._keys, refuse=refuse
            )
            now = store.states_of(connection, self._keys)
            for vote in done.votes:
                # Votes may also be those that made the list: their clusters are still tied.
                # A cluster with votes of practice alone has no state.
                state = now.get(vote.cluster_id)
                if state is None or not state.ties:
                    assignment.note_answered(connection, vote, self.rules)
        return messages.ImportAnswer(
            saved=len(done.votes),
            unchanged=done.unchanged,
            refused=refused[:_REFUSED_MOST],
            refused_total=len(refused),
        )

    def cluster(self, cluster_id: int, key: str) -> Cluster:
        """Return a cluster, if it is unchanged since the reviewer loaded it.

        Raises:
            Problem: 404 if it does not exist, 409 if it has changed.
        """
        found = self.concepts.clusters.get(cluster_id)
        if found is None:
            raise Problem(
                404,
                "unknown-cluster",
                f"there is no cluster {cluster_id} here; there are {len(self._keys):,}",
            )
        if found.key != key:
            raise Problem(
                409,
                "cluster-changed",
                f"cluster {cluster_id} has other members now than when you opened it: the figures"
                " were clustered again. Nothing was saved; reload the page and look at it again",
            )
        return found

    @cached_property
    def _keys(self) -> dict[int, str]:
        return {one.cluster_id: one.key for one in self.concepts.clusters.values()}

    def _standing(self, connection: Connection, reviewer: str) -> ReviewerState:
        return assignment.reviewer_state(
            connection, self.concepts.clusters, self.rules, reviewer, self.taxonomy
        )

    def _check_place(self, vote: ReviewVote, now: ReviewerState) -> None:
        if vote.practice:
            if vote.cluster_id not in self.rules.practice:
                raise Problem(
                    409,
                    "not-for-practice",
                    f"cluster {vote.cluster_id} is not in the practice round",
                )
            return
        left = [one for one in self.rules.practice if one not in now.practised]
        if left:
            raise Problem(
                409,
                "practice-first",
                f"{len(left)} clusters of the practice round are left; votes count after it",
            )
        if not assignment.may_vote(vote.cluster_id, self.rules, now):
            raise Problem(
                409,
                "no-place-left",
                f"cluster {vote.cluster_id} has enough reviewers: your time with it ran out, and"
                " another reviewer took the place. Nothing was saved; take the next",
            )
        most = self.settings.clusters_per_reviewer
        is_new = vote.cluster_id not in now.own and vote.cluster_id not in now.lost
        if most is not None and is_new and len(now.own) >= most:
            raise Problem(
                409, "enough", f"you have answered {most} clusters, the maximum of one reviewer"
            )

    def _own(self, connection: Connection, reviewer: str, offer: Offer) -> ReviewVote | None:
        cluster = self.concepts.clusters[offer.cluster_id]
        return store.vote_of(
            connection,
            cluster.cluster_id,
            cluster.key,
            reviewer,
            practice=offer.kind == "practice",
        )

    def _sheet(self, offer: Offer, own: ReviewVote | None) -> messages.Sheet:
        answers = None
        if own is not None:
            answers = messages.Answers.model_validate(own, from_attributes=True)
        return messages.Sheet(
            **vars(self.concepts.clusters[offer.cluster_id]),
            kind=offer.kind,
            ties=list(offer.ties),
            answers=answers,
            members=[_member(one) for one in self.concepts.sheet(offer.cluster_id)],
        )

    def _recent(self, connection: Connection, reviewer: str) -> list[messages.Recent]:
        rows = connection.execute(
            sa.select(votes.c.cluster_id, votes.c.key, votes.c.practice)
            .where(votes.c.reviewer == reviewer)
            .order_by(votes.c.created.desc())
            .limit(_RECENT)
        )
        return [
            messages.Recent.model_validate(row, from_attributes=True)
            for row in rows
            if self._keys.get(row.cluster_id) == row.key
        ]

    def _progress(self, now: ReviewerState) -> messages.ReviewProgress:
        votes_per_cluster = self.settings.votes_per_cluster
        counts = [min(state.votes, votes_per_cluster) for state in now.states.values()]
        listed = {one for one in self.rules.ties.fields if one not in now.states}
        ties = {one for one, state in now.states.items() if self.rules.ties_of(one, state)}
        clusters = len(self.concepts.clusters)
        return messages.ReviewProgress(
            own=messages.ReviewerProgress(
                practised=len(now.practised.intersection(self.rules.practice)),
                practice=len(self.rules.practice),
                votes=len(now.own),
                most=self.settings.clusters_per_reviewer,
            ),
            overall=messages.Overall(
                clusters=clusters,
                complete=sum(count == votes_per_cluster for count in counts),
                votes=sum(counts),
                wanted=clusters * votes_per_cluster,
                ties=len(ties | listed),
            ),
        )


def open_desk(settings: ReviewSettings) -> Desk:
    """Return a review, ready for use; its database is created if it does not exist.

    Raises:
        BiovlError: If its clusters, taxonomy, ties or database cannot be opened.
    """
    concepts = ReviewConcepts(settings.concepts)
    clusters = concepts.clusters
    rules = Rules(
        votes_per_cluster=settings.votes_per_cluster,
        clusters_per_reviewer=settings.clusters_per_reviewer,
        reservation_s=settings.reservation_s,
        seed=settings.seed,
        practice=practice_of(clusters, settings.practice, settings.seed),
        ties=read_ties(settings.ties, clusters) if settings.ties else TieList(),
    )
    taxonomy = load_taxonomy(settings.taxonomy)
    return Desk(settings, concepts, taxonomy, Database(settings.database), rules)


def _member(member: Member) -> messages.MemberAnswer:
    url = None
    if member.thumbnail:
        # Embedded in the response: an <img> cannot send the API key; 30 requests are slower.
        url = f"data:image/jpeg;base64,{base64.b64encode(member.thumbnail).decode()}"
    return messages.MemberAnswer(**{**vars(member), "thumbnail": url})
