// A client of gRPC C++ in a closed loop: see ../README.md for its flags and its line of JSON.
//
// One thread, one completion queue, generated stubs: the asynchronous way of the gRPC documentation, with the least work
// around it. No call has a deadline.

#include <grpcpp/grpcpp.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "compat/ydb_ping.grpc.pb.h"
#include "pelton/v1/kv.grpc.pb.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr char kUsage[] =
    "usage: grpc-cpp-client [OPTION ...]\n"
    "\n"
    "Options\n"
    "  --address HOST:PORT       the server (127.0.0.1:1978)\n"
    "  --method get|ping         what is called (get)\n"
    "  --in-flight N             calls in flight, over all channels (1)\n"
    "  --channels N              channels (1)\n"
    "  --channel-args same|distinct|local-pool\n"
    "                            all channels have the same arguments, each one of its own, or each a pool\n"
    "                            of subchannels of its own (same)\n"
    "  --keys N                  get: keys are numbered from 0 to N-1 (100000)\n"
    "  --warm-up SECONDS         run so long before measuring (0.5)\n"
    "  --seconds SECONDS         measure so long (2)\n"
    "  --server-pid PID          count the CPU time of this process, too\n";

constexpr auto kConnectTimeout = std::chrono::seconds(10);

struct Options {
  std::string address = "127.0.0.1:1978";
  std::string method = "get";
  int in_flight = 1;
  int channels = 1;
  std::string channel_args = "same";
  uint64_t keys = 100'000;
  double warm_up = 0.5;
  double seconds = 2;
  std::string server_pid;
};

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "grpc-cpp-client: %s\n", what.c_str());
  std::exit(2);
}

Options Parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; i++) {
    std::string name = words[i];
    if (name == "--help" || name == "-h") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    }
    if (i + 1 == count) Fail("no value for " + name);
    std::string value = words[++i];
    if (name == "--address") options.address = value;
    else if (name == "--method") options.method = value;
    else if (name == "--in-flight") options.in_flight = std::stoi(value);
    else if (name == "--channels") options.channels = std::stoi(value);
    else if (name == "--channel-args") options.channel_args = value;
    else if (name == "--keys") options.keys = std::stoull(value);
    else if (name == "--warm-up") options.warm_up = std::stod(value);
    else if (name == "--seconds") options.seconds = std::stod(value);
    else if (name == "--server-pid") options.server_pid = value;
    else Fail("unknown flag " + name);
  }
  if (options.in_flight < 1 || options.channels < 1 || options.keys < 1) Fail("numbers begin at 1");
  return options;
}

std::vector<std::shared_ptr<grpc::Channel>> Connect(const Options& options) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < options.channels; i++) {
    grpc::ChannelArguments arguments;
    if (options.channel_args == "distinct") arguments.SetInt("pelton.channel", i);
    else if (options.channel_args == "local-pool") arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    else if (options.channel_args != "same") Fail("unknown --channel-args " + options.channel_args);
    channels.push_back(grpc::CreateCustomChannel(options.address, grpc::InsecureChannelCredentials(), arguments));
    channels.back()->GetState(true);
  }
  for (auto& channel : channels) {
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + kConnectTimeout)) {
      Fail("no connection to " + options.address);
    }
  }
  return channels;
}

// CPU time of all threads of a process, in nanoseconds.
uint64_t ProcessNs(const std::string& pid) {
  uint64_t total = 0, one = 0;
  for (auto& task : std::filesystem::directory_iterator("/proc/" + pid + "/task")) {
    if (std::ifstream(task.path() / "schedstat") >> one) total += one;
  }
  return total;
}

uint64_t OwnNs() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return uint64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// A moment of the measurement.
struct Mark {
  Clock::time_point time;
  uint64_t own_ns;
  uint64_t server_ns;
};

Mark MarkNow(const Options& options) {
  return {Clock::now(), OwnNs(), options.server_pid.empty() ? 0 : ProcessNs(options.server_pid)};
}

// The key of this number, as `pelton load` names its keys.
std::string Key(uint64_t number) {
  for (uint64_t factor : {0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu}) number = (number ^ number >> 32) * factor;
  number ^= number >> 32;
  std::string key(16, '0');
  for (int i = 15; i >= 0; i--, number >>= 4) key[i] = "0123456789abcdef"[number & 15];
  return key;
}

struct Get {
  using Service = pelton::v1::KeyValue;
  using Request = pelton::v1::GetRequest;
  using Response = pelton::v1::GetResponse;

  static auto Start(Service::Stub& stub, grpc::ClientContext* context, const Request& request, grpc::CompletionQueue* queue) {
    return stub.AsyncGet(context, request, queue);
  }
  static void Choose(Request& request, uint64_t number) { request.set_key(Key(number)); }
  static bool IsRight(const Response& response) { return response.found(); }
};

struct Ping {
  using Service = Ydb::Debug::V1::DebugService;
  using Request = Ydb::Debug::V1::PlainGrpcRequest;
  using Response = Ydb::Debug::V1::PlainGrpcResponse;

  static auto Start(Service::Stub& stub, grpc::ClientContext* context, const Request& request, grpc::CompletionQueue* queue) {
    return stub.AsyncPingPlainGrpc(context, request, queue);
  }
  static void Choose(Request&, uint64_t) {}
  static bool IsRight(const Response&) { return true; }
};

struct Outcome {
  Mark begin, end;
  std::vector<uint64_t> latencies_ns;
  uint64_t failures = 0;
  std::string first_failure;
};

// A place keeps one call in flight.
template <class Method>
class Place {
 public:
  void Start(typename Method::Service::Stub& stub, uint64_t number, grpc::CompletionQueue* queue) {
    Method::Choose(request_, number);
    context_.emplace();
    response_.Clear();
    begun_ = Clock::now();
    reader_ = Method::Start(stub, &*context_, request_, queue);
    reader_->Finish(&response_, &status_, this);
  }

  std::string Failure() const {
    if (!status_.ok()) return status_.error_message();
    return Method::IsRight(response_) ? "" : "the key was not found";
  }
  Clock::time_point begun() const { return begun_; }
  int number = 0;

 private:
  std::optional<grpc::ClientContext> context_;
  typename Method::Request request_;
  typename Method::Response response_;
  grpc::Status status_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<typename Method::Response>> reader_;
  Clock::time_point begun_;
};

template <class Method>
Outcome Run(const Options& options) {
  auto channels = Connect(options);
  std::vector<std::unique_ptr<typename Method::Service::Stub>> stubs;
  for (auto& channel : channels) stubs.push_back(Method::Service::NewStub(channel));
  grpc::CompletionQueue queue;
  std::vector<Place<Method>> places(options.in_flight);
  std::minstd_rand random(1);
  auto start = [&](Place<Method>& place) {
    place.Start(*stubs[place.number % stubs.size()], random() % options.keys, &queue);
  };

  Outcome outcome;
  auto after = [](Clock::time_point from, double seconds) {
    return from + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  enum { kWarmUp, kMeasure, kDrain } phase = kWarmUp;
  auto until = after(Clock::now(), options.warm_up);
  for (int i = 0; i < options.in_flight; i++) {
    places[i].number = i;
    start(places[i]);
  }
  void* tag;
  bool ok;
  for (int running = options.in_flight; running > 0 && queue.Next(&tag, &ok);) {
    auto& place = *static_cast<Place<Method>*>(tag);
    auto now = Clock::now();
    if (auto failure = place.Failure(); !failure.empty()) {
      if (outcome.failures++ == 0) outcome.first_failure = failure;
    } else if (phase == kMeasure) {
      outcome.latencies_ns.push_back((now - place.begun()).count());
    }
    if (now >= until && phase == kWarmUp) {
      phase = kMeasure;
      outcome.begin = MarkNow(options);
      until = after(outcome.begin.time, options.seconds);
    } else if (now >= until && phase == kMeasure) {
      phase = kDrain;
      outcome.end = MarkNow(options);
    }
    if (phase == kDrain) running--;
    else start(place);
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return outcome;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (unsigned char letter : text) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    quoted += letter < ' ' ? ' ' : letter;
  }
  return quoted + "\"";
}

void Print(const Options& options, Outcome& outcome) {
  auto& sorted = outcome.latencies_ns;
  std::sort(sorted.begin(), sorted.end());
  auto percentile_us = [&](double share) {
    return sorted.empty() ? 0.0 : sorted[std::min(sorted.size() - 1, size_t(share * sorted.size()))] / 1e3;
  };
  double calls = std::max<double>(1, sorted.size());
  double elapsed_s = std::chrono::duration<double>(outcome.end.time - outcome.begin.time).count();
  std::printf(
      "{\"client\": %s, \"method\": %s, \"in_flight\": %d, \"channels\": %d, \"channel_args\": %s, "
      "\"calls\": %zu, \"failures\": %llu, \"first_failure\": %s, \"elapsed_s\": %.6f, \"calls_per_s\": %.1f, "
      "\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"own_us\": %.4f",
      Quoted("gRPC C++ " + grpc::Version()).c_str(), Quoted(options.method).c_str(), options.in_flight, options.channels,
      Quoted(options.channel_args).c_str(), sorted.size(), static_cast<unsigned long long>(outcome.failures),
      Quoted(outcome.first_failure).c_str(), elapsed_s, sorted.size() / elapsed_s, percentile_us(0.5), percentile_us(0.99),
      percentile_us(1), (outcome.end.own_ns - outcome.begin.own_ns) / 1e3 / calls);
  if (!options.server_pid.empty()) {
    std::printf(", \"server_us\": %.4f", (outcome.end.server_ns - outcome.begin.server_ns) / 1e3 / calls);
  }
  std::printf("}\n");
}

}  // namespace

int main(int count, char** words) {
  Options options = Parse(count, words);
  if (options.method != "get" && options.method != "ping") Fail("unknown --method " + options.method);
  Outcome outcome = options.method == "get" ? Run<Get>(options) : Run<Ping>(options);
  Print(options, outcome);
  return outcome.failures == 0 ? 0 : 1;
}
