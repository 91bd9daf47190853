-- What each state of a rollout counts as (`COUNTED_AS` in schemas/events/collector.py; a test holds the two together).
create or replace view counted_as as
select * from (values
    ('scored', 'scored'), ('model_final', 'scored'), ('judge_recoverable', 'failed'), ('retryable', 'failed'), ('exhausted', 'failed'),
    ('terminal', 'failed'), ('masked', 'masked'), ('missing', 'missing'), ('running', 'missing'), ('planned', 'missing')
) as t(state, counted);

-- One row a run. planned = scored + failed + masked + missing, always; while a run is going on, missing is what is not over yet, and
-- `open` is what has begun and is not over. state: requested, running, paused, cancelling, completed, cancelled, failed.
create or replace view runs as
with changes as (
    select
        run_id, arg_max(change, seq) as last_change, bool_or(change = 'cancelled') as is_cancelled,
        arg_max(reason, seq) as last_reason
    from run_changes group by run_id
), counts as (
    select
        r.run_id, count(*) filter (c.counted = 'scored') as scored, count(*) filter (c.counted = 'failed') as failed,
        count(*) filter (c.counted = 'masked') as masked, count(*) filter (r.state = 'running') as open,
        avg(r.reward) filter (c.counted = 'scored') as mean_reward
    from rollouts r join counted_as c on c.state = r.state group by r.run_id
)
select
    q.run_id,
    case
        when f.state is not null then f.state
        when coalesce(h.is_cancelled, false) then 'cancelling'
        when h.last_change = 'paused' then 'paused'
        when s.run_id is not null then 'running'
        else 'requested'
    end as state,
    coalesce(s.planned, 0) as planned, coalesce(s.tasks, 0) as tasks, q.num_repeats, s.model,
    coalesce(q.config->>'$.agent.type', 'simple_agent') as agent, q.recorded_at as requested_at, s.recorded_at as started, f.recorded_at as finished,
    coalesce(c.scored, 0) as scored, coalesce(c.failed, 0) as failed, coalesce(c.masked, 0) as masked,
    coalesce(s.planned, 0) - coalesce(c.scored, 0) - coalesce(c.failed, 0) - coalesce(c.masked, 0) as missing,
    coalesce(c.open, 0) as open, c.mean_reward,
    case when f.state is null and h.last_change = 'paused' then h.last_reason end as paused_because,
    f.failure_kind, f.failure_message, q.config_digest, s.taskset_digest, q.output_dir, q.max_attempts, coalesce(s.shards, 1) as shards
from run_requested q
left join run_started s on s.run_id = q.run_id
left join run_finished f on f.run_id = q.run_id
left join changes h on h.run_id = q.run_id
left join counts c on c.run_id = q.run_id;
