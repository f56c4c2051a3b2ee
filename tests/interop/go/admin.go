package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
)

var administrator *kadm.Client

// `name` is the call, as kadm names it.
func admin(ctx context.Context, asked ask) (any, error) {
	switch asked.Name {
	case "CreateTopic":
		configs := map[string]*string{}
		for key, value := range asked.Configs {
			configs[key] = kadm.StringPtr(value)
		}
		made, err := administrator.CreateTopic(ctx, asked.Partitions, 1, configs, asked.Topic)
		return made.NumPartitions, err
	case "CreatePartitions":
		made, err := administrator.CreatePartitions(ctx, int(asked.Partitions), asked.Topic)
		return nil, first(err, made.Error())
	case "DeleteTopics":
		gone, err := administrator.DeleteTopics(ctx, asked.Topic)
		return nil, first(err, gone.Error())
	case "ListTopics":
		found, err := administrator.ListTopics(ctx, asked.Topic)
		return len(found[asked.Topic].Partitions), first(err, found[asked.Topic].Err)
	case "ListOffsetsAfterMilli":
		found, err := administrator.ListOffsetsAfterMilli(ctx, asked.Timestamp, asked.Topic)
		return found[asked.Topic][0].Offset, first(err, found.Error())
	case "DeleteRecords":
		var before kadm.Offsets
		before.AddOffset(asked.Topic, 0, *asked.Offset, -1)
		gone, err := administrator.DeleteRecords(ctx, before)
		return gone[asked.Topic][0].LowWatermark, first(err, gone.Error())
	case "AlterTopicConfigs":
		changes := []kadm.AlterConfig{}
		for key, value := range asked.Configs {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: kadm.StringPtr(value)})
		}
		changed, err := administrator.AlterTopicConfigs(ctx, changes, asked.Topic)
		for _, each := range changed {
			err = first(err, each.Err)
		}
		return nil, err
	case "DescribeTopicConfigs":
		found, err := administrator.DescribeTopicConfigs(ctx, asked.Topic)
		values := map[string]string{}
		for _, resource := range found {
			for _, config := range resource.Configs {
				values[config.Key] = config.MaybeValue()
			}
		}
		return values, err
	}
	return groups(ctx, asked)
}

func groups(ctx context.Context, asked ask) (any, error) {
	switch asked.Name {
	case "ListGroups":
		found, err := administrator.ListGroups(ctx)
		return found[asked.Group].State, err
	case "DescribeGroups":
		found, err := administrator.DescribeGroups(ctx, asked.Group)
		return map[string]any{"state": found[asked.Group].State, "members": len(found[asked.Group].Members)}, first(err, found.Error())
	case "DescribeConsumerGroups":
		found, err := administrator.DescribeConsumerGroups(ctx, asked.Group)
		return map[string]any{"state": found[asked.Group].State, "members": len(found[asked.Group].Members)}, err
	case "Lag":
		found, err := administrator.Lag(ctx, asked.Group)
		return found[asked.Group].Lag.Total(), first(err, found.Error())
	case "CommitOffsets":
		var wanted kadm.Offsets
		wanted.AddOffset(asked.Topic, 0, *asked.Offset, -1)
		kept, err := administrator.CommitOffsets(ctx, asked.Group, wanted)
		return nil, first(err, kept.Error())
	case "FetchOffsets":
		found, err := administrator.FetchOffsets(ctx, asked.Group)
		return found[asked.Topic][0].At, first(err, found.Error())
	case "DeleteGroup":
		_, err := administrator.DeleteGroup(ctx, asked.Group)
		return nil, err
	}
	return nil, fmt.Errorf("there is no call %s", asked.Name)
}

func first(errors ...error) error {
	for _, each := range errors {
		if each != nil {
			return each
		}
	}
	return nil
}
