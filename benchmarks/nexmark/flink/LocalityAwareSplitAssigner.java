package org.apache.flink.connector.file.src.assigners;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.Optional;
import java.util.PriorityQueue;
import org.apache.flink.connector.file.src.FileSourceSplit;

/**
 * Gives out file splits in the order of their paths.
 *
 * <p>Flink's own class of this name gives them out in no order, so that most events of a history in files would
 * come behind the watermark and be dropped. Here it is put in its place; all else of Flink is as it is published.
 */
public class LocalityAwareSplitAssigner implements FileSplitAssigner {
    private final PriorityQueue<FileSourceSplit> waiting =
            new PriorityQueue<>(
                    Comparator.comparing((FileSourceSplit split) -> split.path().toString())
                            .thenComparing(FileSourceSplit::offset));

    public LocalityAwareSplitAssigner(Collection<FileSourceSplit> splits) {
        waiting.addAll(splits);
    }

    @Override
    public Optional<FileSourceSplit> getNext(String hostname) {
        return Optional.ofNullable(waiting.poll());
    }

    @Override
    public void addSplits(Collection<FileSourceSplit> splits) {
        waiting.addAll(splits);
    }

    @Override
    public Collection<FileSourceSplit> remainingSplits() {
        return new ArrayList<>(waiting);
    }
}
