-- What agents' own programs did (docs/harnesses.md). `trajectory` is their own account, a row for each thing they told, in order; what the
-- model was asked and answered is in `model_calls`. A program whose sandbox was lost is launched again in the next one: `number` is which, and
-- what it told in the one before stays. `launches` has a row a launch; one without an end is under way, or its run was cut off.
create or replace view trajectory as
select
    run_id, rollout_id, attempt, recorded_at, (data->>'$.launch_id') as launch_id, try_cast(data->>'$.part' as integer) as part, item.place,
    item.told->>'$.kind' as kind, item.told->>'$.name' as name, item.told->>'$.id' as id, item.told->>'$.text' as text,
    try_cast(item.told->>'$.exit_code' as integer) as exit_code, try_cast(item.told->>'$.is_error' as boolean) as is_error,
    try_cast(item.told->>'$.duration_s' as double) as duration_s, try_cast(item.told->>'$.input_tokens' as bigint) as input_tokens,
    try_cast(item.told->>'$.output_tokens' as bigint) as output_tokens,
    coalesce(try_cast(nullif(split_part(key, '-', 2), '') as integer), 1) as number, shard, seq, launch.activation
from (
    select *, unnest(list_transform(from_json(data->'$.items', '["json"]'), lambda told, place: {told: told, place: place})) as item
    from events where type = 'launch_told.v1'
)
left join (
    select run_id as launched_in, event_id as launched_as, try_cast(data->>'$.activation' as integer) as activation
    from events where type = 'launch_requested.v1'
) launch on launch.launched_in = run_id and launch.launched_as = (data->>'$.launch_id');

create or replace view launches as
select
    asked.run_id, asked.rollout_id, asked.attempt, asked.data->>'$.agent.type' as agent, try_cast(asked.data->>'$.activation' as integer) as activation,
    coalesce(try_cast(asked.data->>'$.number' as integer), 1) as number,
    asked.recorded_at as asked_at, ended.recorded_at as ended_at,
    case ended.type
        when 'launch_ended.v1' then 'ended' when 'launch_failed.v1' then 'not started' when 'launch_lost.v1' then 'lost' else 'open'
    end as state,
    ended.data->>'$.ended_by' as ended_by, try_cast(ended.data->>'$.exit_code' as integer) as exit_code, try_cast(ended.data->>'$.duration_s' as double) as duration_s,
    case when ended.type = 'launch_ended.v1' then coalesce(try_cast(ended.data->>'$.descendants_killed' as integer), 0) end as descendants_killed,
    case when ended.type = 'launch_ended.v1' then coalesce(try_cast(ended.data->>'$.is_clean' as boolean), true) end as is_clean, coalesce(ended.data->>'$.failure.message', ended.data->>'$.reason') as reason,
    coalesce(told.replies, 0) as replies, coalesce(told.tool_calls, 0) as tool_calls,
    coalesce(told.session_id, asked.data->>'$.resume') as session_id, asked.event_id as launch_id
from events asked
left join events ended
    on ended.type in ('launch_ended.v1', 'launch_failed.v1', 'launch_lost.v1') and ended.run_id = asked.run_id
    and ended.data->>'$.request_id' = asked.event_id
left join (
    select
        launch_id, count(*) filter (kind = 'reply_done') as replies, count(*) filter (kind = 'tool_asked') as tool_calls,
        max(id) filter (kind = 'session') as session_id
    from trajectory group by launch_id
) told on told.launch_id = asked.event_id
where asked.type = 'launch_requested.v1';
