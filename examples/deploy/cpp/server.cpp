// Serves the encoder of make_model.py by HTTP, each request of its own size.
//
//   POST /run?batch=B&time=T   B * T * 64 float32 values in, as many out
//   GET /metrics               a histogram of latencies, as Prometheus reads it
#include <disc.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kWidth = 64;
constexpr size_t kMostBytes = size_t{64} << 20;  // of a request

// Seconds up to which a latency is counted in each bucket.
constexpr std::array<double, 8> kBounds = {1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 1e-1};

struct Metrics {
  std::array<std::atomic<int64_t>, kBounds.size() + 1> buckets{};
  std::atomic<int64_t> nanoseconds{0};
  std::atomic<int64_t> refused{0};

  void add(std::chrono::nanoseconds took) {
    size_t bucket = 0;
    while (bucket < kBounds.size() && took.count() * 1e-9 > kBounds[bucket]) ++bucket;
    ++buckets[bucket];
    nanoseconds += took.count();
  }

  std::string text() const {
    std::string out = "# TYPE disc_seconds histogram\n";
    int64_t count = 0;
    for (size_t i = 0; i < buckets.size(); ++i) {
      count += buckets[i];
      char bound[32] = "+Inf";
      if (i < kBounds.size()) std::snprintf(bound, sizeof bound, "%g", kBounds[i]);
      out += "disc_seconds_bucket{le=\"" + std::string(bound) + "\"} " + std::to_string(count) + "\n";
    }
    out += "disc_seconds_sum " + std::to_string(nanoseconds * 1e-9) + "\n";
    out += "disc_seconds_count " + std::to_string(count) + "\n";
    return out + "# TYPE disc_refused counter\ndisc_refused " + std::to_string(refused) + "\n";
  }
};

struct Response {
  int status = 200;
  std::string body;
};

// The value of `name` in the query of a target such as "/run?batch=2&time=7"; -1: there is none.
int64_t parameter(const std::string& target, const std::string& name) {
  const size_t at = target.find(name + "=");
  return at == std::string::npos ? -1 : std::atoll(target.c_str() + at + name.size() + 1);
}

Response run(const disc_program* program, const std::string& target, const std::string& body,
             Metrics& metrics) {
  const int64_t sizes[] = {parameter(target, "batch"), parameter(target, "time"), kWidth};
  constexpr int64_t kMost = 1 << 20;
  if (sizes[0] < 0 || sizes[1] < 0 || sizes[0] > kMost || sizes[1] > kMost ||
      static_cast<size_t>(sizes[0] * sizes[1] * kWidth) * sizeof(float) != body.size()) {
    ++metrics.refused;
    return {400, "the body must have batch * time * 64 values of float32\n"};
  }
  const auto start = std::chrono::steady_clock::now();
  const std::vector<float> x(reinterpret_cast<const float*>(body.data()),
                             reinterpret_cast<const float*>(body.data() + body.size()));
  disc_array argument = {};
  argument.data = x.data();
  argument.sizes = sizes;
  argument.dtype = DISC_FLOAT32;
  argument.rank = 3;
  disc_buffer result = {};
  if (disc_error* error = disc_program_run(program, &argument, 1, &result, 1)) {
    Response out = {400, disc_error_message(error) + std::string("\n")};
    disc_error_free(error);
    ++metrics.refused;
    return out;
  }
  Response out = {200, std::string(static_cast<const char*>(result.data), result.bytes)};
  disc_memory_release(result.memory);
  metrics.add(std::chrono::steady_clock::now() - start);
  return out;
}

// Reads until `text` has `bytes` bytes. False: the client has gone.
bool read_to(int client, std::string& text, size_t bytes) {
  char block[1 << 16];
  while (text.size() < bytes) {
    const ssize_t got = read(client, block, sizeof block);
    if (got <= 0) return false;
    text.append(block, static_cast<size_t>(got));
  }
  return true;
}

void serve(int client, const disc_program* program, Metrics& metrics) {
  std::string text;
  size_t end;
  while ((end = text.find("\r\n\r\n")) == std::string::npos) {
    if (text.size() > 1 << 16 || !read_to(client, text, text.size() + 1)) return;
  }
  const std::string head = text.substr(0, end);
  const size_t first = head.find(' '), second = head.find(' ', first + 1);
  const std::string method = head.substr(0, first);
  const std::string target =
      second == std::string::npos ? "" : head.substr(first + 1, second - first - 1);
  size_t length = 0;
  for (const char* name : {"Content-Length: ", "content-length: "}) {
    const size_t at = head.find(name);
    if (at != std::string::npos) length = std::strtoull(head.c_str() + at + std::strlen(name), nullptr, 10);
  }
  Response out;
  if (length > kMostBytes) {
    out = {413, "the request is too large\n"};
  } else if (!read_to(client, text, end + 4 + length)) {
    return;
  } else if (method == "POST" && target.compare(0, 5, "/run?") == 0) {
    out = run(program, target, text.substr(end + 4, length), metrics);
  } else if (method == "GET" && target == "/metrics") {
    out = {200, metrics.text()};
  } else {
    out = {404, "POST /run?batch=B&time=T or GET /metrics\n"};
  }
  std::string answer = "HTTP/1.1 " + std::to_string(out.status) + " -\r\nConnection: close\r\nContent-Length: " +
                       std::to_string(out.body.size()) + "\r\n\r\n" + out.body;
  for (size_t sent = 0; sent < answer.size();) {
    const ssize_t count = send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;
    sent += static_cast<size_t>(count);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: server MODEL PORT\n");
    return 2;
  }
  disc_options options = {};
  options.struct_size = sizeof options;
  options.threads = 1;  // a request has one thread; there are several requests at once
  disc_program* program = nullptr;
  if (disc_error* error = disc_program_open(argv[1], &options, &program)) {
    std::fprintf(stderr, "%s\n", disc_error_message(error));
    disc_error_free(error);
    return 1;
  }
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[2])));
  socklen_t size = sizeof address;
  if (bind(server, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(server, 128) != 0) {
    std::perror("server");
    return 1;
  }
  getsockname(server, reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("%s at http://127.0.0.1:%d\n", disc_program_name(program), ntohs(address.sin_port));
  std::fflush(stdout);
  Metrics metrics;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(2u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      while (true) {
        const int client = accept(server, nullptr, nullptr);
        if (client < 0) continue;
        serve(client, program, metrics);
        close(client);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}
