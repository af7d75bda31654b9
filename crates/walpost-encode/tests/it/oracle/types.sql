CREATE EXTENSION hstore;
CREATE EXTENSION citext;
CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'happy, "very"');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN price AS numeric(10, 2);
CREATE DOMAIN label AS varchar(20) DEFAULT 'x';
CREATE DOMAIN feeling AS mood;
CREATE DOMAIN content AS bytea;

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['vector', 'halfvec', 'sparsevec', 'geometry', 'geography', 'isbn'] LOOP
        EXECUTE format('CREATE TYPE %I', name);
        EXECUTE format('CREATE FUNCTION %I(cstring) RETURNS %I AS ''textin'' LANGUAGE internal STRICT IMMUTABLE', name || '_in', name);
        EXECUTE format('CREATE FUNCTION %I(%I) RETURNS cstring AS ''textout'' LANGUAGE internal STRICT IMMUTABLE', name || '_out', name);
        EXECUTE format('CREATE TYPE %I (INPUT = %I, OUTPUT = %I, LIKE = text)', name, name || '_in', name || '_out');
    END LOOP;
END
$$;
