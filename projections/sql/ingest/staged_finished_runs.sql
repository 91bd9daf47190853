select p[4] from staged where fit and type = 'run_finished.v1' order by seq;
