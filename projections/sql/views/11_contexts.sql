-- What loops of ours made of their contexts (docs/loops.md). `tokens_before` is what the last answered call had with its answer, `tokens_after`
-- what the prompt of the next answered one had, both as the backend counted; null where it did not, or nothing followed.
create or replace view compactions as
with compacted as (
    select run_id, rollout_id, attempt, key, seq, recorded_at, data from events where type = 'context_compacted.v1'
)
select
    c.run_id, c.rollout_id, c.attempt, c.key, try_cast(c.data->>'$.number' as integer) as number, c.data->>'$.policy' as policy,
    try_cast(c.data->>'$.turn' as integer) as turn, try_cast(c.data->>'$.tokens_before' as bigint) as tokens_before,
    nullif((
        select arg_min(m.input_tokens, m.answered_at)
        from model_calls m
        where m.run_id = c.run_id and m.rollout_id = c.rollout_id and m.attempt = c.attempt and m.key = c.key and m.state = 'completed' and m.seq > c.seq
    ), 0) as tokens_after,
    coalesce(try_cast(c.data->>'$.images' as integer), 0) as images, coalesce(try_cast(c.data->>'$.reasoning_blocks' as integer), 0) as reasoning_blocks,
    coalesce(try_cast(c.data->>'$.tool_results' as integer), 0) as tool_results, coalesce(try_cast(c.data->>'$.messages' as integer), 0) as messages,
    c.data->>'$.summary_call' as summary_call, c.data->'$.gaps' as gaps, c.recorded_at
from compacted c;

-- What such loops said to their models by themselves.
create or replace view nudges as
select
    run_id, rollout_id, attempt, key, try_cast(data->>'$.number' as integer) as number, data->>'$.reason' as reason,
    try_cast(data->>'$.turn' as integer) as turn, data->>'$.text' as text, recorded_at
from events where type = 'agent_nudged.v1';
