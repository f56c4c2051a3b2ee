// franz-go, told what to do by a test in Python: a JSON object a line on standard input, an answer a line on standard
// output, and lines of events from the members of flowing groups in between. Bytes are strings in latin-1.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const answerTime = 15 * time.Second

type header struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type record struct {
	Key       *string  `json:"key"`
	Value     *string  `json:"value"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Headers   []header `json:"headers"`
}

type ask struct {
	Number     int               `json:"number"`
	Verb       string            `json:"verb"`
	Topic      string            `json:"topic"`
	Name       string            `json:"name"`
	Group      string            `json:"group"`
	Protocol   string            `json:"protocol"`
	Codec      string            `json:"codec"`
	Acks       int               `json:"acks"`
	Records    []record          `json:"records"`
	Offset     *int64            `json:"offset"`
	Partitions int32             `json:"partitions"`
	Timestamp  int64             `json:"timestamp"`
	Configs    map[string]string `json:"configs"`
	Settings   map[string]string `json:"settings"`
}

type reader struct {
	client *kgo.Client
	mutex  sync.Mutex
	owned  map[int32]bool
	stop   context.CancelFunc
	done   chan struct{}
}

var (
	seeds   []string
	readers = map[string]*reader{}
	output  sync.Mutex
)

func tell(what any) {
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func latin(content []byte) *string {
	if content == nil {
		return nil
	}
	var text strings.Builder
	for _, each := range content {
		text.WriteRune(rune(each))
	}
	made := text.String()
	return &made
}

func content(text *string) []byte {
	if text == nil {
		return nil
	}
	made := []byte{}
	for _, each := range *text {
		made = append(made, byte(each))
	}
	return made
}

func plain(each *kgo.Record) record {
	found := record{Key: latin(each.Key), Value: latin(each.Value), Partition: each.Partition, Offset: each.Offset}
	found.Timestamp = each.Timestamp.UnixMilli()
	for _, one := range each.Headers {
		found.Headers = append(found.Headers, header{one.Key, *latin(one.Value)})
	}
	return found
}

func options(asked ask) []kgo.Opt {
	codecs := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.ClientID("interop"), kgo.ProducerBatchCompression(codecs[asked.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(20),
	}
	if asked.Acks == 1 {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	}
	return opts
}

func member(asked ask, more ...kgo.Opt) []kgo.Opt {
	opts := append(options(asked), kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200*time.Millisecond))
	if asked.Protocol == "consumer" {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	return append(opts, more...)
}

func produce(ctx context.Context, asked ask) (any, error) {
	client, err := kgo.NewClient(options(asked)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	kept := [][]int64{}
	sent := []*kgo.Record{}
	for _, each := range asked.Records {
		one := &kgo.Record{Topic: asked.Topic, Key: content(each.Key), Value: content(each.Value), Partition: each.Partition}
		if each.Timestamp > 0 {
			one.Timestamp = time.UnixMilli(each.Timestamp)
		}
		for _, h := range each.Headers {
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: h.Key, Value: content(&h.Value)})
		}
		sent = append(sent, one)
	}
	for _, result := range client.ProduceSync(ctx, sent...) {
		if result.Err != nil {
			return nil, result.Err
		}
		kept = append(kept, []int64{int64(result.Record.Partition), result.Record.Offset})
	}
	return kept, nil
}

// A member of its group where there is one, a reader of all partitions from an offset otherwise.
func open(_ context.Context, asked ask) (any, error) {
	made := &reader{owned: map[int32]bool{}}
	note := func(owned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, moved map[string][]int32) {
			made.mutex.Lock()
			defer made.mutex.Unlock()
			for _, partition := range moved[asked.Topic] {
				if owned {
					made.owned[partition] = true
				} else {
					delete(made.owned, partition)
				}
			}
		}
	}
	opts := append(options(asked), kgo.ConsumeTopics(asked.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if asked.Offset != nil {
		at := map[string]map[int32]kgo.Offset{asked.Topic: {0: kgo.NewOffset().At(*asked.Offset)}}
		opts = append(options(asked), kgo.ConsumePartitions(at))
	}
	if asked.Group != "" {
		opts = member(asked, kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	made.client = client
	readers[asked.Name] = made
	return nil, nil
}

func poll(ctx context.Context, asked ask) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	found := []record{}
	fetches := readers[asked.Name].client.PollFetches(ctx)
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return nil, failed.Err
		}
	}
	fetches.EachRecord(func(each *kgo.Record) { found = append(found, plain(each)) })
	return found, nil
}

func assignment(_ context.Context, asked ask) (any, error) {
	made := readers[asked.Name]
	made.mutex.Lock()
	defer made.mutex.Unlock()
	owned := []int32{}
	for partition := range made.owned {
		owned = append(owned, partition)
	}
	return owned, nil
}

func commit(ctx context.Context, asked ask) (any, error) {
	return nil, readers[asked.Name].client.CommitUncommittedOffsets(ctx)
}

func closeReader(_ context.Context, asked ask) (any, error) {
	readers[asked.Name].client.Close()
	delete(readers, asked.Name)
	return nil, nil
}

// A member of a flowing group: reads and commits by itself, and tells what happens to it.
func join(ctx context.Context, asked ask) (any, error) {
	made := &reader{done: make(chan struct{})}
	moved := func(kind string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(ctx context.Context, client *kgo.Client, parts map[string][]int32) {
			if kind == "revoked" {
				keep(ctx, client, asked)
			}
			tell(map[string]any{"event": kind, "member": asked.Name, "partitions": append([]int32{}, parts[asked.Topic]...)})
		}
	}
	asked.Group, asked.Protocol = asked.Settings["group"], asked.Settings["protocol"]
	client, err := kgo.NewClient(member(asked, kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsAssigned(moved("assigned")),
		kgo.OnPartitionsRevoked(moved("revoked")), kgo.OnPartitionsLost(moved("lost")))...)
	if err != nil {
		return nil, err
	}
	background, stop := context.WithCancel(context.Background())
	made.client, made.stop = client, stop
	readers[asked.Name] = made
	go flow(background, made, asked)
	return nil, nil
}

func flow(ctx context.Context, made *reader, asked ask) {
	defer close(made.done)
	for ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := made.client.PollFetches(wait)
		cancel()
		values := [][]any{}
		fetches.EachRecord(func(each *kgo.Record) { values = append(values, []any{each.Partition, latin(each.Value)}) })
		if len(values) > 0 {
			tell(map[string]any{"event": "read", "member": asked.Name, "values": values})
			keep(context.Background(), made.client, asked)
		}
		made.client.AllowRebalance()
	}
}

func keep(ctx context.Context, client *kgo.Client, asked ask) {
	partitions := []int32{}
	for partition := range client.UncommittedOffsets()[asked.Topic] {
		partitions = append(partitions, partition)
	}
	if len(partitions) == 0 {
		return
	}
	event := map[string]any{"event": "kept", "member": asked.Name, "partitions": partitions}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		event = map[string]any{"event": "refused", "member": asked.Name, "error": nameOf(err)}
	}
	tell(event)
}

func leave(_ context.Context, asked ask) (any, error) {
	made := readers[asked.Name]
	delete(readers, asked.Name)
	made.stop()
	<-made.done
	made.client.CloseAllowingRebalance()
	return nil, nil
}

func nameOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return "Error"
}

var verbs = map[string]func(context.Context, ask) (any, error){
	"produce": produce, "open": open, "poll": poll, "assignment": assignment, "commit": commit, "close": closeReader,
	"join": join, "leave": leave, "admin": admin,
}

func main() {
	seeds = os.Args[1:]
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		panic(err)
	}
	administrator = kadm.NewClient(client)
	tell(map[string]string{"answer": "ready"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var asked ask
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		answer, err := verbs[asked.Verb](ctx, asked)
		cancel()
		if err != nil {
			tell(map[string]any{"number": asked.Number, "error": nameOf(err), "message": err.Error()})
			continue
		}
		tell(map[string]any{"number": asked.Number, "answer": answer})
	}
	client.Close()
}
