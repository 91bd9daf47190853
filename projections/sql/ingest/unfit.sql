-- What of the batch the pass could not take.
select seq, subject, body from incoming where seq not in (select seq from staged where fit) order by seq;
