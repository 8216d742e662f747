# The coordinator and nothing else: a static binary, the CAs of public certificates, no shell. It runs as a user without
# a name, needs no place to write to, and takes its configuration from a file that is mounted:
#
#   docker build --build-arg VERSION=v1.0.0 -t llm-d-coordinator .
#   docker run --read-only --cap-drop ALL -p 8080:8080 -v "$PWD/my.toml:/etc/coordinator/coordinator.toml:ro" llm-d-coordinator

FROM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
# As tools/release builds.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -mod=readonly \
    -ldflags "-s -w -buildid= -X main.released=${VERSION}" -o coordinator ./cmd/coordinator

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/coordinator /coordinator
USER 65532:65532
EXPOSE 8080 9090
ENTRYPOINT ["/coordinator"]
CMD ["--config", "/etc/coordinator/coordinator.toml"]
