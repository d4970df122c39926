/* An HTTP server of BERT for benchmarks/deploy: one front, and the backend that it is linked with.
 *
 * server MODEL WORKERS
 *
 * POST /run?batch=B&time=T with two int32 arrays [B, T], one behind the other, gives float32 [B, T, H]. A connection
 * stays open. Each worker has one connection at a time, and a call has one thread. Prints its port.
 */
#define _POSIX_C_SOURCE 200809L
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend.h"

enum { HEAD = 4096, MOST_BYTES = 1 << 20 };

typedef struct {
  int server;
  const model* opened;
} shared;

void fail(const char* what) {
  fprintf(stderr, "server: %s\n", what);
  exit(1);
}

static int send_all(int client, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(client, data, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return 0;
    data += sent;
    bytes -= (size_t)sent;
  }
  return 1;
}

static void serve(int client, const model* opened, char* text, char* body, result* out) {
  static const char refused[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
  size_t has = 0;
  for (;;) {
    char* end;
    text[has] = 0;
    while ((end = strstr(text, "\r\n\r\n")) == NULL) {
      const ssize_t got = has < HEAD ? read(client, text + has, HEAD - has) : 0;
      if (got <= 0) return;
      has += (size_t)got;
      text[has] = 0;
    }
    long batch, time, length;
    const char* const told = strstr(text, "Content-Length: ");
    if (sscanf(text, "POST /run?batch=%ld&time=%ld ", &batch, &time) != 2 || told == NULL ||
        sscanf(told, "Content-Length: %ld", &length) != 1 || batch < 1 || time < 1 || length > MOST_BYTES ||
        length / 8 / batch != time || length != 8 * batch * time) {
      send_all(client, refused, sizeof refused - 1);
      return;
    }
    const size_t head = (size_t)(end + 4 - text), wanted = (size_t)length;
    size_t there = has - head < wanted ? has - head : wanted;
    memcpy(body, text + head, there);
    has -= head + there;
    memmove(text, text + head + there, has);
    while (there < wanted) {
      const ssize_t got = read(client, body + there, wanted - there);
      if (got <= 0) return;
      there += (size_t)got;
    }
    array given[2] = {{"int32", body, {batch, time}, 2}, {"int32", body + wanted / 2, {batch, time}, 2}};
    model_run(opened, given, 2, 0, out);
    char answer[128];
    const int size = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", out->bytes);
    if (!send_all(client, answer, (size_t)size) || !send_all(client, out->data, out->bytes)) return;
  }
}

static void* work(void* given) {
  const shared* const all = given;
  char text[HEAD + 1];
  char* const body = aligned_alloc(64, MOST_BYTES);
  result out = {0};
  if (body == NULL) fail("out of memory");
  for (;;) {
    const int client = accept(all->server, NULL, NULL);
    if (client < 0) continue;
    const int on = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    serve(client, all->opened, text, body, &out);
    close(client);
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) fail("usage: server MODEL WORKERS");
  struct sockaddr_in address = {0};
  socklen_t size = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  shared all = {socket(AF_INET, SOCK_STREAM, 0), model_open(argv[1], 1)};
  if (bind(all.server, (struct sockaddr*)&address, size) != 0 || listen(all.server, 16) != 0) fail("no port");
  getsockname(all.server, (struct sockaddr*)&address, &size);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  for (int i = 1; i < atoi(argv[2]); ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, &all) != 0) fail("no thread");
  }
  work(&all);
}
