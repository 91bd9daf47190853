-- Sessions that wait for an input from outside (docs/harnesses.md), a row each: since when, and until when they do. The last input that they took,
-- `activation`, has its answer, and it is not yet said that no other comes.
create or replace view waiting_sessions as
with open_sessions as (
    select s.run_id, s.rollout_id, s.attempt, s.awaits_input_s, s.follow_ups
    from session_requested s
    anti join session_finished e on e.run_id = s.run_id and e.rollout_id = s.rollout_id and e.attempt = s.attempt
    anti join rollout_finished r on r.run_id = s.run_id and r.rollout_id = s.rollout_id and r.attempt >= s.attempt
    anti join run_finished f on f.run_id = s.run_id
    where s.awaits_input_s is not null
), newest as (
    select
        o.*, max_by(e.type, e.seq) as last_type, max(e.recorded_at) as since, max(try_cast(e.data->>'$.activation' as integer)) as activation,
        max_by(e.data->>'$.evidence.stop_reason', e.seq) as stop_reason
    from open_sessions o join events e on e.run_id = o.run_id and e.rollout_id = o.rollout_id and e.attempt = o.attempt
    where e.type in ('activation_started.v1', 'activation_completed.v1', 'activation_failed.v1', 'input_ended.v1')
    group by all
)
select run_id, rollout_id, attempt, activation, since, since + to_seconds(awaits_input_s) as until
from newest
where last_type = 'activation_completed.v1' and activation > follow_ups and stop_reason != 'max_steps' and not starts_with(stop_reason, 'budget:');
