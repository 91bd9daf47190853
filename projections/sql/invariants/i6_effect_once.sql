-- I6, effect once (what the log alone can tell): a turn of a conversation has one recorded answer and is not asked for again after it (but
-- for a client of the gateway, which may ask what it likes); a tool call has one outcome, and the same call of a turn is asked for
-- again only after a refusal (stale, or not lent to who asked), or in another sandbox, which there is only if the one before was lost, or
-- the program that was launched in it. A launch is given each recorded answer once, of a launch before it, and it was answered.
select 'turn answered twice' as what, run_id, rollout_id, key, turn, count(*) as times
from model_calls where state = 'completed' and dialect is null group by run_id, rollout_id, key, turn having count(*) > 1
union all
select 'turn asked again', q.run_id, q.rollout_id, q.key, q.turn, count(*)
from model_call_requested q join model_call_answered a
on a.run_id = q.run_id and a.rollout_id = q.rollout_id and a.key = q.key and a.turn = q.turn and a.state = 'completed' and a.seq < q.seq
where q.dialect is null
group by q.run_id, q.rollout_id, q.key, q.turn
union all
select 'tool call with two outcomes', run_id, rollout_id, key, null, count(*)
from tool_call_answered group by run_id, rollout_id, key, request_id having count(*) > 1
union all
select 'tool call executed twice', run_id, rollout_id, key, turn, count(*)
from tool_calls where state is null or coalesce(failure_kind, '') not in ('stale', 'not_lent')
group by run_id, rollout_id, key, number, turn, call_index having count(*) > 1
union all
select 'sandbox replaced that was not lost', c.run_id, c.rollout_id, c.key, null, 1
from sandbox_changes c
where c.state = 'created' and contains(c.key, '-') and not exists (
    select 1 from sandbox_changes l where l.run_id = c.run_id and l.rollout_id = c.rollout_id and l.state = 'lost' and l.seq < c.seq
        and l.key in (split_part(c.key, '-', 1), split_part(c.key, '-', 1) || '-' || (split_part(c.key, '-', 2)::integer - 1))
) and not exists (
    select 1 from events l where l.type = 'launch_lost.v1' and l.run_id = c.run_id and l.rollout_id = c.rollout_id and l.seq < c.seq
        and l.key in (split_part(c.key, '-', 1), split_part(c.key, '-', 1) || '-' || (split_part(c.key, '-', 2)::integer - 1))
)
union all
select 'answer given twice to a launch', run_id, rollout_id, key, turn, count(*)
from model_call_recalled group by run_id, rollout_id, key, call_id, turn, activation, launch having count(*) > 1
union all
select 'answer given that no earlier launch had', r.run_id, r.rollout_id, r.key, r.turn, 1
from model_call_recalled r left join model_calls c on c.run_id = r.run_id and c.call_id = r.call_id
where c.state is distinct from 'completed' or c.activation != r.activation or c.launch >= r.launch;
