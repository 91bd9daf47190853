"""What rows are to each other: every relation, and every gap where the log does not say."""

from __future__ import annotations

from projections.samples import Sample, rebuild
from projections.samples.sample import TrainingRow
from tests.support.call_story import IDS, Story


def test_rollback_makes_the_answer_that_came_last_the_main_chain() -> None:
    """The shared beginning is trained once, in the main chain; the other is a branch with mask 0 on it."""
    story = Story()
    first = story.answer(story.root())
    dead = story.answer(story.ask(first, "a"))
    live = story.answer(story.ask(first, "b"))
    last = story.answer(story.ask(live))
    main, branch = rebuild(story.events).samples
    assert main.call_ids == (first.id, live.id, last.id)
    assert (branch.relation, branch.parent, branch.parent_call_id) == ("branch", main.sample_id, first.id)
    assert [span.is_trained for span in branch.spans] == [False, True]
    shared = branch.spans[0]
    assert list(branch.logprobs[shared.generated_start : shared.end]) == first.logprobs, "kept where masked"
    assert branch.call_ids == (first.id, dead.id)


def test_a_reset_of_the_context_is_a_restart_of_the_chain_before() -> None:
    """Same system prompt and tools, asked when all was answered: it follows the chain with the last answer, and so on."""
    story = Story()
    first = story.answer(story.root("a"))
    story.answer(story.ask(first, "b"))
    story.answer(story.ask(first, "c"))
    story.answer(story.root("b"))
    story.answer(story.root("c", conversation="s2"))
    rows = rebuild(story.events).samples
    assert [row.relation for row in rows] == ["main", "branch", "restart", "restart"]
    assert [row.follows for row in rows[2:]] == [rows[0].sample_id, rows[2].sample_id]
    assert (rows[2].system_digest, rows[2].tools_digest) == (rows[0].system_digest, rows[0].tools_digest)
    assert rows[0].answered_at < rows[2].asked_at


def test_other_tools_or_another_system_prompt_make_a_sub_agent() -> None:
    """Whenever it is asked."""
    story = Story()
    story.answer(story.root("a"))
    story.answer(story.root("b", system="c"))
    story.answer(story.root("c", tools="t2"))
    rows = rebuild(story.events).samples
    assert [(row.relation, row.follows, row.gaps) for row in rows[1:]] == [("sub_agent", None, ())] * 2


def test_what_is_asked_while_another_is_going_on_is_a_sub_agent() -> None:
    """It names the row that was going on; of one that had ended it may also be the restart, which is said and not decided."""
    story = Story()
    main = story.answer(story.root("a"))
    story.answer(story.root("b"))
    story.answer(story.root("b", system="c"))
    story.answer(story.root("c", system="c"))
    story.answer(story.ask(main))
    rows = rebuild(story.events).samples
    assert [row.relation for row in rows] == ["main", "sub_agent", "sub_agent", "sub_agent"]
    assert [row.during for row in rows[1:]] == [(rows[0].sample_id,)] * 3
    assert [row.gaps for row in rows[1:]] == [(), (), ("restart_possible",)]


def test_two_chains_that_could_have_been_restarted_are_not_chosen_between() -> None:
    """Parallel sub-agents, then another of their kind when all is quiet."""
    story = Story()
    asked = [story.root("a"), story.root("b"), story.root("c")]
    for told in asked:
        story.answer(told)
    story.answer(story.root("ab"))
    row = rebuild(story.events).samples[-1]
    assert (row.relation, row.follows, row.gaps) == ("restart", None, ("follows_ambiguous",))


def test_tries_of_one_question_are_one_group() -> None:
    """A root that failed and was asked again is no sub-agent, and its second try no restart."""
    story = Story()
    told = story.root("a")
    story.fail(told, 500)
    again = story.again(told)
    story.answer(again)
    [row] = rebuild(story.events).samples
    assert (row.relation, row.gaps) == ("main", ())


def test_an_abandoned_try_is_excluded() -> None:
    """The client timed out, asked the same again, and went on with that answer."""
    story = Story()
    first = story.answer(story.root())
    slow = story.ask(first)
    fast = story.again(slow)
    story.answer(fast, "b")
    story.answer(slow, "c")
    story.answer(story.ask(fast), "a")
    rebuilt = rebuild(story.events)
    assert [(one.call_id, one.reason, one.tokens) for one in rebuilt.excluded] == [(slow.id, "abandoned_try", 1)]
    assert len(rebuilt.samples) == 1
    [rejected] = rebuilt.rejected
    assert rejected.call_ids == (slow.id,)


def test_two_answers_of_which_none_was_continued_are_both_kept_and_say_so() -> None:
    """Nor if what was continued fits both."""
    story = Story()
    first = story.answer(story.root())
    one = story.answer(story.ask(first), "b")
    other = story.answer(story.again(one), "b")
    assert [row.gaps for row in rebuild(story.events).samples] == [("tries_unresolved",)] * 2
    story.answer(story.ask(other, gaps=("parent_ambiguous",)))
    gaps = [set(row.gaps) for row in rebuild(story.events).samples]
    assert gaps == [{"tries_unresolved", "parent_ambiguous"}, {"tries_unresolved"}]


def test_a_first_root_without_ids_gives_its_place_to_the_next_with_a_gap() -> None:
    """What the first conversation was is not known; that there was one is."""
    story = Story()
    story.answer(story.root("a"), tokens=None)
    story.answer(story.root("b"))
    [row] = rebuild(story.events).samples
    assert (row.relation, row.gaps) == ("main", ("first_root_without_row",))


def test_a_beginning_without_ids_is_named() -> None:
    """The first call gave no ids, the next did: the row begins there and is the main one all the same."""
    story = Story()
    first = story.answer(story.root(), tokens=None)
    second = story.answer(story.ask(first))
    story.answer(story.ask(first, "c"))
    story.answer(story.ask(second))
    main, branch = rebuild(story.events).samples
    assert (main.relation, main.parent_call_id, main.gaps) == ("main", first.id, ("beginning_without_ids",))
    assert (branch.relation, branch.parent, branch.parent_call_id) == ("branch", None, first.id)


def test_compaction_that_kept_a_part_is_a_rewritten_prompt() -> None:
    """So are thoughts that were dropped from the history."""
    for how in ("kept_part", "dropped"):
        story = Story()
        first = story.answer(story.root(), [IDS["ab"], IDS["c"]])
        second = story.answer(story.ask(first), "bc")
        third = story.answer(story.ask(second, how=how))
        main, row = rebuild(story.events).samples
        assert (row.relation, row.parent, row.parent_call_id) == ("rewritten", main.sample_id, second.id)
        assert list(row.token_ids[: row.prompt_length]) == third.prompt


def test_a_parent_that_is_not_in_the_log_is_a_gap() -> None:
    """The row begins anew and says so; what hangs on the missing ids cannot be put together."""
    story = Story()
    first = story.answer(story.root())
    second = story.ask(first)
    second.generated, second.logprobs = [IDS["a"]], [-0.25]
    whole = story.difference(second, parent_id=None, shared=0, prompt=tuple(second.prompt))
    story.answer(second, "a", tokens=whole)
    broken = story.answer(story.ask(first, "c"))
    rebuilt = rebuild(story.events[2:])
    [row] = rebuilt.samples
    assert (row.relation, row.parent, row.parent_call_id) == ("rewritten", None, first.id)
    assert row.gaps == ("parent_unknown",)
    assert [(one.call_id, one.reason) for one in rebuilt.excluded] == [(broken.id, "chain_broken")]


def sample(story: Story) -> Sample:
    [row] = rebuild(story.events).samples
    return row


def test_identity_follows_from_content() -> None:
    """The same calls give the same id; a row that has grown has another."""
    story = Story()
    first = story.answer(story.root())
    before = sample(story).sample_id
    assert sample(story).sample_id == before
    story.answer(story.ask(first))
    assert sample(story).sample_id != before


def test_what_branches_share_is_owned_by_the_first_that_was_asked() -> None:
    """Beside the main chain, and below a sub-agent, whatever is answered first."""
    story = Story()
    first = story.answer(story.root("a", system="c"))
    side = story.answer(story.ask(first, "a"))
    early, late = story.ask(side, "a"), story.ask(side, "b")
    story.answer(late)
    story.answer(early)
    sub = story.answer(story.root("b"))
    one, other = story.ask(sub, "a"), story.ask(sub, "b")
    story.answer(other)
    story.answer(one)
    story.answer(story.ask(first, "c"))
    rows = {row.call_ids[-1]: [span.is_trained for span in row.spans] for row in rebuild(story.events).samples}
    assert rows[early.id] == [False, True, True]
    assert rows[late.id] == [False, False, True]
    assert rows[one.id] == [True, True]
    assert rows[other.id] == [False, True]


def test_a_root_that_was_answered_twice_is_one_conversation() -> None:
    """The second try is a branch of nothing, and no restart."""
    story = Story()
    told = story.answer(story.root(), "b")
    story.answer(story.again(told), "c")
    main, branch = rebuild(story.events).samples
    assert (main.relation, branch.relation, branch.parent, branch.parent_call_id) == ("main", "branch", None, None)
    assert main.gaps == branch.gaps == ("tries_unresolved",)


def test_a_call_that_is_still_open_is_going_on() -> None:
    """Nothing is said of its end, so nothing is taken for its restart."""
    story = Story()
    first = story.answer(story.root())
    story.ask(first)
    story.answer(story.root("c"))
    main, other = rebuild(story.events).samples
    assert (other.relation, other.during) == ("sub_agent", (main.sample_id,))


def test_nothing_continues_what_was_not_answered_yet_when_it_was_asked() -> None:
    """Though its prompt begins with the same ids: they cannot be from there."""
    story = Story()
    first, second = story.root(), story.root("b")
    story.answer(first)
    second.prompt = [*first.whole, IDS["a"]]
    second.generated, second.logprobs = [IDS["b"]], [-0.25]
    shared = story.difference(second, parent_id=first.id, shared=len(first.whole), prompt=(IDS["a"],))
    story.answer(second, "b", tokens=shared)
    rows = rebuild(story.events).samples
    assert [row.call_ids for row in rows] == [(first.id,), (second.id,)]
    assert [sum(row.loss_mask) for row in rows] == [1, 1]
    assert list(rows[1].token_ids) == second.whole


def test_ids_that_were_found_wrong_are_nobodys_beginning() -> None:
    """A call recorded as untrainable stands in no row as a call; what follows it continues what came before it."""
    story = Story()
    first = story.answer(story.root())
    wrong = story.answer(story.ask(first), "bc", untrainable="sources_disagree")
    last = story.answer(story.ask(wrong))
    [row] = rebuild(story.events).samples
    assert (row.call_ids, row.gaps) == ((first.id, last.id), ("parent_without_ids",))
    assert list(row.token_ids) == last.whole


def test_a_reward_is_there_only_if_it_was_scored() -> None:
    """Whatever stands in the projection."""
    story = Story()
    story.answer(story.root())
    row = sample(story)
    assert TrainingRow.of(row, "scored", "scored", 0.0).reward == 0.0
    assert TrainingRow.of(row, "missing", "missing", 0.5).reward is None
