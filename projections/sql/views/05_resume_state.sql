-- Who writes each aggregate now: the worker of its last claim.
create or replace view holders as
select
    run_id, rollout_id, actor, key, arg_max(worker, seq) as worker, max(seq) as epoch, max(shard) as shard, count(*) as claims,
    arg_max(recorded_at, seq) as claimed_at
from claims group by run_id, rollout_id, actor, key;

-- Requests without an answer, with who holds the aggregate that made them, and who the aggregate that was asked (the one whose claim
-- names the request; null as long as nobody took it).
create or replace view open_work as
select
    o.run_id, o.rollout_id, o.attempt, o.actor as asked_by, o.key, o.type, o.event_id as request_id, o.to_kind, o.place, o.recorded_at as since,
    h.worker as asker, c.worker as holder
from open_requests o
left join holders h on h.run_id = o.run_id and h.rollout_id = o.rollout_id and h.actor = o.actor and h.key = o.key
left join (
    select l.run_id, l.request_id, arg_max(h.worker, l.seq) as worker
    from claims l join holders h on h.run_id = l.run_id and h.rollout_id = l.rollout_id and h.actor = l.actor and h.key = l.key
    where l.request_id is not null group by l.run_id, l.request_id
) c on c.run_id = o.run_id and c.request_id = o.event_id;

-- Per rollout: what is done, what is open. is_done: nothing of it is left to do. attempt: the one that is open or due; 0 if it has not
-- begun. `holders` are the workers of the aggregates with something open.
create or replace view resume_state as
with work as (
    select
        run_id, rollout_id, list(type order by request_id) as open_requests,
        list_sort(list(distinct coalesce(holder, asker)) filter (coalesce(holder, asker) is not null)) as holders
    from open_work group by run_id, rollout_id
)
select
    r.run_id, r.rollout_id, r.task_index, r.repeat, r.state, r.state not in ('planned', 'running') as is_done, r.stage,
    case when r.stage = 'retry' then r.attempts + 1 else r.attempts end as attempt, r.failures, r.retry_at, r.reward,
    coalesce(w.open_requests, []) as open_requests, coalesce(w.holders, []) as holders
from rollouts r left join work w on w.run_id = r.run_id and w.rollout_id = r.rollout_id;
