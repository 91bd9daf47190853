-- Aggregates that changed hands: claims beyond the first.
create or replace view takeovers as
select run_id, rollout_id, actor, key, claims - 1 as takeovers, worker from holders where claims > 1;

-- What went wrong on the way, by rollout ('_' is the run itself). waiting_since: when the oldest unanswered request was made.
create or replace view diagnostics as
with failures as (
    select run_id, rollout_id, recorded_at, seq, 'model' as what, failure_kind, failure_message, retry_in_s is not null as is_retried
    from model_call_answered where state = 'failed'
    union all
    select run_id, rollout_id, recorded_at, seq, 'tool', failure_kind, failure_message, false from tool_call_answered where state = 'failed'
    union all
    select run_id, rollout_id, recorded_at, seq, 'tool', 'tool_lost', failure_message, false from tool_call_answered where state = 'lost'
    union all
    select run_id, rollout_id, recorded_at, seq, 'model', 'model_call_lost', null, false from model_call_answered where state = 'lost'
    union all
    select run_id, rollout_id, recorded_at, seq, 'sandbox', coalesce(failure_kind, 'sandbox_lost'), reason, false
    from sandbox_changes where state in ('failed', 'lost')
    union all
    select run_id, rollout_id, recorded_at, seq, 'session', failure_kind, failure_message, false from session_finished where state = 'failed'
    union all
    select run_id, rollout_id, recorded_at, seq, 'verdict', failure_kind, failure_message, false from verdicts where state = 'failed'
    union all
    select run_id, rollout_id, recorded_at, seq, 'parked', failure_kind, failure_message, false from parked
    union all
    select run_id, rollout_id, recorded_at, seq, 'rollout', failure_kind, failure_message, retry_at is not null
    from rollout_finished where failure_kind is not null
), kinds as (
    select run_id, rollout_id, map_from_entries(list((failure_kind, n) order by failure_kind)) as model_failures
    from (
        select run_id, rollout_id, failure_kind, count(*) as n from failures where what = 'model' and failure_kind != 'model_call_lost'
        group by all
    ) group by run_id, rollout_id
), summed as (
    select
        run_id, rollout_id,
        count(*) filter (what = 'model' and is_retried) as model_retries, count(*) filter (what = 'rollout' and is_retried) as attempts_retried,
        count(*) filter (failure_kind = 'model_call_lost') as lost_model_calls, count(*) filter (failure_kind = 'tool_lost') as lost_tool_calls,
        count(*) filter (what = 'sandbox' and failure_kind = 'sandbox_lost') as lost_sandboxes,
        count(*) filter (what = 'tool' and failure_kind = 'stale') as stale, count(*) filter (what = 'parked') as parked,
        arg_max(failure_message, seq) filter (failure_message is not null) as last_failure_message,
        arg_max(failure_kind, seq) as last_failure_kind, max(recorded_at) as last_failure_at
    from failures group by run_id, rollout_id
), backoff as (
    select run_id, rollout_id, sum(retry_in_s) as backoff_s from model_call_answered group by run_id, rollout_id
), taken as (
    select run_id, rollout_id, sum(takeovers)::bigint as takeovers from takeovers group by run_id, rollout_id
), waiting as (
    select run_id, rollout_id, min(since) as waiting_since, count(*) as unanswered from open_work group by run_id, rollout_id
), known as (
    select run_id, rollout_id from summed union select run_id, rollout_id from taken union select run_id, rollout_id from waiting
)
select
    k.run_id, k.rollout_id, coalesce(m.model_failures, map {}) as model_failures, coalesce(s.model_retries, 0) as model_retries,
    coalesce(b.backoff_s, 0) as backoff_s, coalesce(s.attempts_retried, 0) as attempts_retried,
    coalesce(s.lost_model_calls, 0) as lost_model_calls, coalesce(s.lost_tool_calls, 0) as lost_tool_calls,
    coalesce(s.lost_sandboxes, 0) as lost_sandboxes, coalesce(s.stale, 0) as stale, coalesce(s.parked, 0) as parked,
    coalesce(t.takeovers, 0) as takeovers, s.last_failure_kind, s.last_failure_message, s.last_failure_at,
    coalesce(w.unanswered, 0) as unanswered, w.waiting_since
from known k
left join summed s on s.run_id = k.run_id and s.rollout_id = k.rollout_id
left join kinds m on m.run_id = k.run_id and m.rollout_id = k.rollout_id
left join backoff b on b.run_id = k.run_id and b.rollout_id = k.rollout_id
left join taken t on t.run_id = k.run_id and t.rollout_id = k.rollout_id
left join waiting w on w.run_id = k.run_id and w.rollout_id = k.rollout_id;

-- The same for whole runs.
create or replace view run_diagnostics as
with kinds as (
    select run_id, map_from_entries(list((failure_kind, n) order by failure_kind)) as model_failures
    from (select run_id, failure_kind, count(*) as n from model_call_answered where state = 'failed' group by all) group by run_id
)
select
    d.run_id, coalesce(any_value(k.model_failures), map {}) as model_failures, sum(model_retries)::bigint as model_retries,
    sum(backoff_s) as backoff_s, sum(attempts_retried)::bigint as attempts_retried, sum(lost_model_calls)::bigint as lost_model_calls,
    sum(lost_tool_calls)::bigint as lost_tool_calls, sum(lost_sandboxes)::bigint as lost_sandboxes, sum(stale)::bigint as stale,
    sum(parked)::bigint as parked, sum(takeovers)::bigint as takeovers, arg_max(last_failure_kind, last_failure_at) as last_failure_kind,
    arg_max(last_failure_message, last_failure_at) as last_failure_message, min(waiting_since) as waiting_since,
    sum(unanswered)::bigint as unanswered
from diagnostics d left join kinds k on k.run_id = d.run_id group by d.run_id;
