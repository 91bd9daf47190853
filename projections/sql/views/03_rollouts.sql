-- Every rollout that is planned or has been seen.
create or replace view rollout_ids as
select r.run_id, t.task_index || '-' || n.repeat as rollout_id, t.task_index, n.repeat::integer as repeat, t.task_id
from run_requested r join planned_tasks t on t.run_id = r.run_id, lateral (select unnest(range(r.num_repeats)) as repeat) n
union
select
    s.run_id, s.rollout_id, try_cast(split_part(s.rollout_id, '-', 1) as integer), s.repeat, s.task_id
from session_requested s anti join planned_tasks t on t.run_id = s.run_id;

-- How each attempt ended; the last is what counts.
create or replace view rollout_endings as
select * from rollout_finished
qualify row_number() over (partition by run_id, rollout_id order by attempt desc, seq) = 1;

-- One row a rollout, about its latest attempt. tool_calls: of an agent's own program what it told that it called (`program_tools`), of others
-- their commands and the calls of the task's tools; tool_s is the time of our loops' commands alone. state: planned, running, or how it ended; in a run that is over nothing is open, and what
-- was cut short is missing (with the failure of its last attempt, if it had one). An ending with a time for a retry is not the end.
create or replace view rollouts as
with attempts as (
    select run_id, rollout_id, attempt, recorded_at, event_id as session_id from session_requested
    union all
    select run_id, rollout_id, attempt, recorded_at, null from rollout_finished
), begun as (
    select
        run_id, rollout_id, max(attempt) as attempt, min(recorded_at) as first_at, arg_max(recorded_at, attempt) filter (session_id is not null) as started_at,
        arg_max(session_id, attempt) as session_id
    from attempts group by run_id, rollout_id
), retries as (
    select run_id, rollout_id, count(*) filter (retry_at is not null) as retried,
        count(*) filter (
            retry_at is not null and failure_kind not in ('provider_auth', 'sandbox_unavailable', 'gateway_unreachable')
        ) as failures
    from rollout_finished group by run_id, rollout_id
), calls as (
    select
        run_id, rollout_id, attempt, count(*) as tries, count(*) filter (state = 'completed') as model_calls,
        count(*) filter (state = 'lost') as lost_calls, sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens,
        sum(cached_tokens) as cached_tokens, sum(reasoning_tokens) as reasoning_tokens,
        sum(duration_s) as model_s, max(turn) filter (state = 'completed') as turns
    from model_calls group by run_id, rollout_id, attempt
), tools as (
    select
        run_id, rollout_id, attempt, count(*) filter (state is null or failure_kind is distinct from 'stale') as tool_calls,
        sum(duration_s) as tool_s
    from tool_calls group by run_id, rollout_id, attempt
), offered as (
    select run_id, rollout_id, attempt, count(*) as tool_calls from events asked
    anti join (select run_id, rollout_id, attempt from events where type = 'launch_requested.v1') launched using (run_id, rollout_id, attempt)
    where type = 'task_tool_call_requested.v1' group by all
), graded as (
    select * from verdicts where state = 'issued' qualify row_number() over (partition by run_id, rollout_id, attempt order by seq) = 1
), sessions as (
    select * from session_finished qualify row_number() over (partition by run_id, rollout_id, attempt order by seq) = 1
)
select
    i.run_id, i.rollout_id, i.task_id, i.task_index, i.repeat,
    case
        when e.attempt = b.attempt and e.retry_at is null then e.state
        when f.run_id is not null then 'missing'
        when b.run_id is null then 'planned'
        else 'running'
    end as state,
    case
        when f.run_id is not null or b.run_id is null or (e.attempt = b.attempt and e.retry_at is null) then null
        when e.attempt = b.attempt then 'retry'
        when s.state = 'closed' then 'verdict'
        else 'session'
    end as stage,
    coalesce(b.attempt, 0) as attempts, coalesce(r.failures, 0) as failures, coalesce(r.retried, 0) as retried,
    case when e.attempt = b.attempt then e.reward end as reward,
    e.failure_kind, e.failure_message, e.failure_stage,
    case when e.attempt = b.attempt and f.run_id is null then e.retry_at end as retry_at,
    coalesce(s.turns, c.turns, 0) as turns, coalesce(t.tool_calls, 0) + coalesce(p.tool_calls, 0) + coalesce(o.tool_calls, 0) as tool_calls, coalesce(c.model_calls, 0) as model_calls,
    coalesce(c.tries, 0) as tries, coalesce(c.lost_calls, 0) as lost_calls,
    coalesce(a.calls_recalled, 0) as calls_recalled, coalesce(a.calls_repaid, 0) as calls_repaid,
    coalesce(c.input_tokens, 0)::bigint as input_tokens, coalesce(c.output_tokens, 0)::bigint as output_tokens,
    coalesce(c.cached_tokens, 0)::bigint as cached_tokens, coalesce(c.reasoning_tokens, 0)::bigint as reasoning_tokens,
    s.answer, s.stop_reason, g.failure_reason, g.components, g.verifier_version, b.started_at,
    case when e.attempt = b.attempt then e.recorded_at end as finished_at,
    date_diff('millisecond', b.first_at, case when e.attempt = b.attempt then e.recorded_at end) / 1000.0 as duration_s,
    coalesce(c.model_s, 0) as model_s, coalesce(t.tool_s, 0) as tool_s, b.session_id
from rollout_ids i
left join begun b on b.run_id = i.run_id and b.rollout_id = i.rollout_id
left join rollout_endings e on e.run_id = i.run_id and e.rollout_id = i.rollout_id
left join retries r on r.run_id = i.run_id and r.rollout_id = i.rollout_id
left join calls c on c.run_id = i.run_id and c.rollout_id = i.rollout_id and c.attempt = b.attempt
left join recalls a on a.run_id = i.run_id and a.rollout_id = i.rollout_id and a.attempt = b.attempt
left join tools t on t.run_id = i.run_id and t.rollout_id = i.rollout_id and t.attempt = b.attempt
left join program_tools p on p.run_id = i.run_id and p.rollout_id = i.rollout_id and p.attempt = b.attempt
left join offered o on o.run_id = i.run_id and o.rollout_id = i.rollout_id and o.attempt = b.attempt
left join sessions s on s.run_id = i.run_id and s.rollout_id = i.rollout_id and s.attempt = b.attempt
left join graded g on g.run_id = i.run_id and g.rollout_id = i.rollout_id and g.attempt = b.attempt
left join run_finished f on f.run_id = i.run_id;
