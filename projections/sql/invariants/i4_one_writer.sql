-- I4, one writer: an event carries the epoch of the last claim before it in its aggregate (0 where nothing was ever claimed).
select shard, seq, run_id, rollout_id, actor, key, type, epoch, claimed_at
from (
    select
        *, coalesce(max(seq) filter (kind = 'claim') over (
            partition by run_id, rollout_id, actor, key order by shard, seq rows between unbounded preceding and 1 preceding
        ), 0) as claimed_at
    from events
) where kind != 'claim' and epoch != claimed_at;
