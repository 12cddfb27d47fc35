-- A table of integers and texts, joined and grouped; the number of rows is set by the caller:
-- sqlite3 -cmd '.param set :rows N' :memory: '.read query.sql'
create table item(id integer primary key, kind integer, name text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < :rows)
insert into item select i, i * 7919 % 1009, 'name' || (i * 31 % 5003) from n;
create index by_kind on item(kind);
select count(*) from item a join item b on b.kind = a.kind and b.id < a.id where a.id % 7 = 0;
select kind, count(*), min(name), max(name) from item group by kind order by 2 desc, 1 limit 3;
select count(distinct name) from item where name like '%1%';
