-- Calls of the tools that tasks offer (docs/harnesses.md), a row each. `duration_s` is what executing it took, `waited_s` what passed from the
-- request to the answer; one without an answer is under way, or its run was cut off. `replays` is how often a program that was run again made it again.
create or replace view task_tool_calls as
select
    asked.run_id, asked.rollout_id, asked.attempt, try_cast(asked.data->>'$.number' as integer) as number, asked.actor as asked_by,
    asked.data->>'$.tool' as tool, asked.data->'$.arguments' as arguments, asked.data->>'$.grant' as "grant",
    coalesce(try_cast(asked.data->>'$.launch' as integer), 1) as launch, asked.recorded_at as asked_at, ended.recorded_at as ended_at,
    case ended.type
        when 'task_tool_call_completed.v1' then 'completed' when 'task_tool_call_failed.v1' then 'failed' when 'task_tool_call_lost.v1' then 'lost'
        when 'request_parked.v1' then 'parked' else 'open'
    end as state,
    ended.data->>'$.text' as text,
    case when ended.type = 'task_tool_call_completed.v1' then coalesce(try_cast(ended.data->>'$.is_error' as boolean), false) end as is_error,
    ended.data->'$.record' as record, try_cast(ended.data->>'$.duration_s' as double) as duration_s,
    epoch_ms(ended.recorded_at - asked.recorded_at) / 1000.0 as waited_s,
    coalesce(ended.data->>'$.failure.message', ended.data->>'$.reason') as reason, coalesce(again.replays, 0) as replays, asked.event_id as call_id
from events asked
left join events ended
    on ended.type in ('task_tool_call_completed.v1', 'task_tool_call_failed.v1', 'task_tool_call_lost.v1', 'request_parked.v1')
    and ended.run_id = asked.run_id and ended.data->>'$.request_id' = asked.event_id
left join (
    select run_id, rollout_id, attempt, try_cast(data->>'$.number' as integer) as number, count(*) as replays
    from events where type = 'task_tool_call_replayed.v1' group by all
) again on again.run_id = asked.run_id and again.rollout_id = asked.rollout_id and again.attempt = asked.attempt
    and again.number = try_cast(asked.data->>'$.number' as integer)
where asked.type = 'task_tool_call_requested.v1';
