-- I3, order: ordinals are gapless in their aggregate and rise with the sequence (claims and snapshots carry the last one's); every cause
-- that is named exists.
select 'ordinal' as what, shard, seq, event_id, type, ordinal, expected
from (
    select
        *, count(*) filter (kind not in ('claim', 'snapshot')) over (
            partition by run_id, rollout_id, actor, key order by shard, seq rows between unbounded preceding and current row
        ) as expected
    from events
) where ordinal != expected
union all
select 'cause', e.shard, e.seq, e.event_id, e.type, null, null
from events e anti join events c on c.event_id = e.causation_id where e.causation_id is not null;
