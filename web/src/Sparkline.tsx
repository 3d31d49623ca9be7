/** How many generated and how many waited, over the time since the page was opened. */
import { memo } from 'react';
import { paths, type Point } from './history.ts';
import { grouped } from './lines.ts';
import { about } from './units.ts';
import type { Translate } from './words/index.ts';

const WIDTH = 120;
const HEIGHT = 24;

interface SparklineProps {
  readonly points: readonly Point[];
  /** Whose numbers these are. */
  readonly name: string;
  readonly t: Translate;
}

export const Sparkline = memo(function Sparkline({ points, name, t }: SparklineProps) {
  const [first, last] = [points[0], points.at(-1)];
  // A line along the bottom says nothing.
  if (first === undefined || last === undefined || !points.some(({ occupancy, waiting }) => occupancy + waiting > 0)) return null;
  const { occupancy, waiting } = paths(points, WIDTH, HEIGHT);
  const most = (of: (point: Point) => number): string => grouped(points.reduce((found, point) => Math.max(found, of(point)), 0));
  const text = t('now.spark', { name, time: about(last.at - first.at, t), generating: most((point) => point.occupancy), waiting: most((point) => point.waiting) });
  return (
    <svg className="gl-spark" role="img" viewBox={`0 -1 ${WIDTH} ${HEIGHT + 2}`} preserveAspectRatio="none">
      <title>{text}</title>
      <path className="gl-spark-waiting" d={`${waiting}V${HEIGHT}H0Z`} />
      <path className="gl-spark-occupancy" d={occupancy} vectorEffect="non-scaling-stroke" />
    </svg>
  );
});
