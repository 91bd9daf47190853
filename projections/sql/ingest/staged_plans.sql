select p[4], data->'$.plan' from staged where fit and type = 'run_started.v1' order by seq;
