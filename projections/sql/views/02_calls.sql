-- One row a model call try, and one a tool call, with what came of it (state null: no answer yet). prompt_tokens and generated_tokens count
-- the ids that the backend gave (docs/samples.md), input_tokens and output_tokens are what it counted itself.

create or replace view model_calls as
select
    q.run_id, q.rollout_id, q.attempt, q.key, q.event_id as call_id, q.turn, q.tries, q.recorded_at as requested_at,
    a.state, a.recorded_at as answered_at, a.stop_reason, a.input_tokens, a.output_tokens, a.cached_tokens, a.reasoning_tokens,
    a.duration_s, a.failure_kind, a.failure_message, a.retry_in_s, q.dialect, q.parent_id, a.first_token_s, a.queue_s, a.cost_usd, a.served_model,
    a.prompt_tokens, a.generated_tokens, a.has_tokens, a.untrainable, q.activation, q.launch, q.shard, q.seq
from model_call_requested q left join model_call_answered a on a.run_id = q.run_id and a.request_id = q.event_id;

-- Programs that were launched again in the middle of an activation (docs/harnesses.md): the last launch of each, and by attempt how many
-- recorded answers programs were given again, and how many calls of earlier launches they were not: those were paid for, and their work done
-- anew. A call that had failed by itself is none of them.
create or replace view recalls as
with relaunched as (
    select run_id, rollout_id, attempt, try_cast(data->>'$.activation' as integer) as activation, max(try_cast(data->>'$.number' as integer)) as launch
    from events where type = 'launch_requested.v1' group by all having max(try_cast(data->>'$.number' as integer)) > 1
), recalled as (
    select run_id, rollout_id, attempt, count(*) as calls_recalled from model_call_recalled group by all
), repaid as (
    select c.run_id, c.rollout_id, c.attempt, count(*) as calls_repaid
    from relaunched l join model_calls c
    on c.run_id = l.run_id and c.rollout_id = l.rollout_id and c.attempt = l.attempt and c.activation = l.activation and c.launch < l.launch
    left join model_call_recalled r on r.run_id = c.run_id and r.call_id = c.call_id and r.launch = l.launch
    where r.call_id is null and (c.state in ('completed', 'lost') or c.failure_kind = 'cancelled')
    group by all
)
select l.run_id, l.rollout_id, l.attempt, coalesce(any_value(r.calls_recalled), 0) as calls_recalled, coalesce(any_value(p.calls_repaid), 0) as calls_repaid
from relaunched l
left join recalled r on r.run_id = l.run_id and r.rollout_id = l.rollout_id and r.attempt = l.attempt
left join repaid p on p.run_id = l.run_id and p.rollout_id = l.rollout_id and p.attempt = l.attempt
group by l.run_id, l.rollout_id, l.attempt;

-- How many tools agents' own programs called, by attempt, as they told it (`trajectory` has each): of every activation what its last launch told,
-- as a program that is launched again in another sandbox does all of it again. A call that was told twice, by its id, counts once.
create or replace view program_tools as
with last_launches as (
    select event_id as launch_id from events where type = 'launch_requested.v1'
    qualify row_number() over (
        partition by run_id, rollout_id, attempt, try_cast(data->>'$.activation' as integer)
        order by coalesce(try_cast(data->>'$.number' as integer), 1) desc
    ) = 1
)
select run_id, rollout_id, attempt, count(distinct (launch_id, call_id)) as tool_calls
from program_tool_calls semi join last_launches using (launch_id) group by run_id, rollout_id, attempt;

-- number: which of the attempt's sandboxes; each after the first follows one that was lost, in which a call may have run before.
create or replace view tool_calls as
select
    q.run_id, q.rollout_id, q.attempt, q.key, q.event_id as request_id, q.call_id, q.turn, q.call_index, q.tool, q.tries, q.number,
    q.recorded_at as requested_at, a.state, a.recorded_at as answered_at, a.exit_code, a.output_bytes, a.truncated, a.ended_by, a.duration_s,
    a.failure_kind, a.failure_message, q.shard, q.seq
from tool_call_requested q left join tool_call_answered a on a.run_id = q.run_id and a.request_id = q.event_id;

-- label: what is written on the machine; is_warm: it was made before it was asked for.
create or replace view sandboxes as
select
    run_id, rollout_id, attempt, key, max(place) as place, max(provider) as provider,
    min(recorded_at) filter (state = 'created') as created_at, min(recorded_at) filter (state = 'lost') as lost_at,
    min(recorded_at) filter (state = 'destroyed') as destroyed_at, min(recorded_at) filter (state = 'failed') as failed_at,
    max(reason) filter (state in ('failed', 'lost')) as reason, max(label) as label, bool_or(is_warm) as is_warm
from sandbox_changes group by run_id, rollout_id, attempt, key;

create or replace view checkpoints as
select
    run_id, rollout_id, attempt, key, request_id, state, recorded_at, snapshot, files, bytes, stored_bytes, left_out, duration_s, paused_s,
    failure_kind, failure_message, shard, seq
from checkpoint_changes;
