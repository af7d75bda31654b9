-- The effects of examples/python-consumer, beside the tables of
-- `walpost migrate --set consumer`.
create table python_shipment (
    event_id text not null,
    part int not null,
    off bigint not null
);
