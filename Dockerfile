# The relay and its command line.
#
# The image of rust has a C and a C++ compiler, make and perl, which
# librdkafka and its TLS need.

ARG RUST_IMAGE=rust:1.95.0-bookworm
ARG RUN_IMAGE=debian:12.12-slim

FROM ${RUST_IMAGE} AS build
# release, or dev for a quick build.
ARG PROFILE=release
WORKDIR /src
COPY . .
RUN cargo build --locked --profile "$PROFILE" --package walpost --features full

FROM ${RUN_IMAGE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin walpost
# One profile was built, so one folder matches.
COPY --from=build /src/target/*/walpost /usr/local/bin/
USER 10001:10001
# A file here is read without being named.
WORKDIR /etc/walpost
EXPOSE 9464
STOPSIGNAL SIGTERM
ENTRYPOINT ["walpost"]
CMD ["run"]
