select r.task_id, r.repeat, c.counted, r.reward
from rollouts r join counted_as c on c.state = r.state where r.run_id = $1 order by r.task_index, r.repeat, r.rollout_id;
