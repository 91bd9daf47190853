-- The inputs of sessions (docs/harnesses.md), a row for each that was taken: the first is that of the session's request. `turns` are those of
-- this activation alone; `launches` counts how often an agent's own program was launched for it. One that is open in a session that failed
-- failed with it.
create or replace view activations as
with asked as (
    select run_id, rollout_id, attempt, 1 as activation, recorded_at as asked_at from events where type = 'session_requested.v1'
    union all
    select run_id, rollout_id, attempt, try_cast(data->>'$.activation' as integer), recorded_at from events where type = 'activation_started.v1'
), ended as (
    select
        run_id, rollout_id, attempt, try_cast(data->>'$.activation' as integer) as activation, recorded_at as ended_at,
        case type when 'activation_completed.v1' then 'completed' else 'failed' end as state,
        try_cast(data->>'$.evidence.turns' as integer) as turns
    from events where type in ('activation_completed.v1', 'activation_failed.v1')
), launched as (
    select run_id, rollout_id, attempt, try_cast(data->>'$.activation' as integer) as activation, count(*) as launches
    from events where type = 'launch_requested.v1' group by all
), failed as (
    select run_id, rollout_id, attempt, min(recorded_at) as failed_at from events where type = 'session_failed.v1' group by all
)
select
    a.run_id, a.rollout_id, a.attempt, a.activation, a.asked_at, coalesce(e.ended_at, f.failed_at) as ended_at,
    coalesce(e.state, case when f.failed_at is not null then 'failed' else 'open' end) as state,
    coalesce(l.launches, 0) as launches, e.turns
from asked a
left join ended e using (run_id, rollout_id, attempt, activation)
left join launched l using (run_id, rollout_id, attempt, activation)
left join failed f using (run_id, rollout_id, attempt);
