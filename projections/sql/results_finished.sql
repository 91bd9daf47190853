select q.run_id, q.output_dir from run_requested q semi join run_finished f on f.run_id = q.run_id order by q.shard, q.seq;
