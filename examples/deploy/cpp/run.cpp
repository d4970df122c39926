// Serves the encoder of make_model.py from several threads, each with requests of other sizes.
//
// disc-dump model.disc --header > build/encoder.hpp
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "encoder.hpp"

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: run MODEL\n");
    return 2;
  }
  disc_options options = {};
  options.struct_size = sizeof options;
  options.threads = 1;  // a request has one thread; there are several requests at once
  const artifact::encoder::Program program(argv[1], &options);

  std::atomic<int> served{0};
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      std::vector<float> x;
      artifact::encoder::Results results;  // whose memory serves all calls of this thread
      for (int request = 0; request < 250; ++request) {
        const int64_t batch = 1 + (request + worker) % 4, time = 1 + request % 97;
        x.assign(static_cast<size_t>(batch * time * 64), 0.5f);
        program.run({{x, {batch, time, 64}}}, results);
        ++served;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("%d requests of 388 sizes, %.3f ms each\n", served.load(), took.count() / served);

  try {
    program({{std::vector<float>(2 * 16 * 63), {2, 16, 63}}});
  } catch (const disc::Error& error) {
    std::printf("%s\n", error.what());
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
