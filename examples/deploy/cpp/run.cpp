// Serves the encoder of make_model.py from several threads, each with requests of other sizes.
#include <disc.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

void check(disc_error* error) {
  if (error == nullptr) return;
  const std::string message = disc_error_message(error);
  disc_error_free(error);
  throw std::runtime_error(message);
}

struct Close {
  void operator()(disc_program* program) const { disc_program_close(program); }
};

// The results of a request of `batch` sentences of `time` words, in `y`.
void run(const disc_program* program, int64_t batch, int64_t time, std::vector<float>& x,
         std::vector<float>& y) {
  const int64_t sizes[] = {batch, time, 64};
  x.assign(static_cast<size_t>(batch * time * 64), 0.5f);
  disc_array argument = {};
  argument.data = x.data();
  argument.sizes = sizes;
  argument.dtype = DISC_FLOAT32;
  argument.rank = 3;
  disc_buffer result = {};
  check(disc_program_run(program, &argument, 1, &result, 1));
  const auto* begin = static_cast<const float*>(result.data);
  y.assign(begin, begin + result.bytes / sizeof(float));
  disc_memory_release(result.memory);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: run MODEL\n");
    return 2;
  }
  disc_options options = {};
  options.struct_size = sizeof options;
  options.threads = 1;  // a request has one thread; there are several requests at once
  disc_program* opened = nullptr;
  check(disc_program_open(argv[1], &options, &opened));
  const std::unique_ptr<disc_program, Close> program(opened);

  std::atomic<int> served{0};
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      std::vector<float> x, y;
      for (int request = 0; request < 250; ++request) {
        run(program.get(), 1 + (request + worker) % 4, 1 + request % 97, x, y);
        ++served;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("%d requests of 388 sizes, %.3f ms each\n", served.load(), took.count() / served);

  try {
    const int64_t sizes[] = {2, 16, 63};
    const std::vector<float> x(2 * 16 * 63);
    disc_array wrong = {x.data(), sizes, nullptr, DISC_FLOAT32, 3, nullptr};
    disc_buffer result = {};
    check(disc_program_run(program.get(), &wrong, 1, &result, 1));
  } catch (const std::runtime_error& error) {
    std::printf("%s\n", error.what());
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
