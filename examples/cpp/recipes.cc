// A client that makes many calls at once: connections, calls in flight, deadlines, message size. See docs/recipes.md.
//
//   recipes                                  tries each recipe
//   recipes CONNECTIONS IN-FLIGHT CALLS      measures

#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include "pelton/v1/admin.grpc.pb.h"
#include "pelton/v1/echo.grpc.pb.h"
#include "pelton/v1/kv.grpc.pb.h"

using Clock = std::chrono::steady_clock;
using pelton::v1::GetRequest;
using pelton::v1::GetResponse;
using pelton::v1::KeyValue;

std::chrono::system_clock::time_point After(std::chrono::milliseconds time) {
  return std::chrono::system_clock::now() + time;
}

// Spreads calls over several connections, and makes only so many at a time.
class Pool {
 public:
  Pool(const std::string& address, int connections, int in_flight, int max_message_bytes) : free_(in_flight) {
    grpc::ChannelArguments arguments;
    // Channels with the same arguments share one connection otherwise.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(max_message_bytes);
    // Notices a peer that is gone without a word while calls wait for it.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
    for (int i = 0; i < connections; i++) {
      channels_.push_back(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
      stores_.push_back(KeyValue::NewStub(channels_.back()));
    }
  }

  // Waits for a free place; then the answer comes within ten seconds, or a failure does. `then` must not wait.
  void Get(const std::string& key, std::function<void(const grpc::Status&, const GetResponse&)> then) {
    struct Call {
      grpc::ClientContext context;
      GetRequest request;
      GetResponse response;
    };
    free_.acquire();
    auto call = std::make_shared<Call>();
    call->context.set_deadline(After(std::chrono::seconds(10)));
    call->request.set_key(key);
    auto& store = stores_[next_++ % stores_.size()];
    store->async()->Get(&call->context, &call->request, &call->response,
                        [this, call, then = std::move(then)](grpc::Status status) {
                          free_.release();
                          then(status, call->response);
                        });
  }

  std::shared_ptr<grpc::Channel> channel() { return channels_[0]; }

 private:
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<KeyValue::Stub>> stores_;
  std::atomic<size_t> next_ = 0;
  std::counting_semaphore<> free_;
};

void Check(const grpc::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "status %d: %s\n", status.error_code(), status.error_message().c_str());
    std::exit(1);
  }
}

// So many Gets; their latencies, sorted.
std::vector<Clock::duration> Many(Pool& pool, int calls) {
  std::vector<Clock::duration> latencies(calls);
  std::latch answered(calls);
  for (auto& latency : latencies) {
    pool.Get("greeting", [&latency, &answered, begin = Clock::now()](const grpc::Status& status, const GetResponse&) {
      Check(status);
      latency = Clock::now() - begin;
      answered.count_down();
    });
  }
  answered.wait();
  std::sort(latencies.begin(), latencies.end());
  return latencies;
}

grpc::StatusCode StatusOfLarge(Pool& pool) {
  std::promise<grpc::StatusCode> code;
  pool.Get("large", [&code](const grpc::Status& status, const GetResponse&) { code.set_value(status.error_code()); });
  return code.get_future().get();
}

void Put(KeyValue::Stub& store, const std::string& key, const std::string& value) {
  grpc::ClientContext context;
  context.set_deadline(After(std::chrono::seconds(10)));
  pelton::v1::PutRequest request;
  pelton::v1::PutResponse response;
  request.set_key(key);
  request.set_value(value);
  Check(store.Put(&context, request, &response));
}

void TryRecipes(const std::string& address) {
  Pool pool(address, 4, 64, 4 << 20);
  auto store = KeyValue::NewStub(pool.channel());
  Put(*store, "greeting", "hello");
  std::printf("%zu answers\n", Many(pool, 2000).size());

  grpc::ClientContext context;
  pelton::v1::StatisticsResponse statistics;
  Check(pelton::v1::Admin::NewStub(pool.channel())->Statistics(&context, {}, &statistics));
  std::printf("%d connections\n", static_cast<int>(statistics.open_connections()));

  grpc::ClientContext soon;
  soon.set_deadline(After(std::chrono::milliseconds(100)));
  pelton::v1::EchoRequest slow;
  pelton::v1::EchoResponse answer;
  slow.set_delay_ms(10'000);
  auto status = pelton::v1::Echo::NewStub(pool.channel())->Unary(&soon, slow, &answer);
  bool in_time = status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
  std::printf("no answer in 100 ms: %s\n", in_time ? "?" : "DEADLINE_EXCEEDED");

  Put(*store, "large", std::string(5'000'000, '\0'));
  bool refused = StatusOfLarge(pool) == grpc::StatusCode::RESOURCE_EXHAUSTED;
  std::printf("5 MB: %s\n", refused ? "RESOURCE_EXHAUSTED" : "?");
  Pool large(address, 1, 64, 9 << 20);
  std::printf("5 MB with a higher limit: %s\n", StatusOfLarge(large) == grpc::StatusCode::OK ? "OK" : "?");
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void Measure(const std::string& address, int connections, int in_flight, int calls) {
  Pool pool(address, connections, in_flight, 4 << 20);
  Many(pool, 1000);
  auto begin = Clock::now();
  double cpu = CpuSeconds();
  auto latencies = Many(pool, calls);
  double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  cpu = CpuSeconds() - cpu;
  auto micros = [&](double share) {
    return std::chrono::duration<double, std::micro>(latencies[static_cast<size_t>(calls * share)]).count();
  };
  std::printf("%.0f calls/s, p50 %.0f µs, p99 %.0f µs, %.1f µs of CPU per call\n", calls / seconds, micros(0.5),
              micros(0.99), cpu / calls * 1e6);
}

int main(int count, char** arguments) {
  const char* address = std::getenv("PELTON_ADDRESS");
  if (address == nullptr) address = "127.0.0.1:1978";
  if (count == 4) {
    Measure(address, std::atoi(arguments[1]), std::atoi(arguments[2]), std::atoi(arguments[3]));
  } else {
    TryRecipes(address);
  }
}
