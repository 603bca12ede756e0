import { Component, type ComponentChildren, type FunctionComponent } from "preact";

/** A component that is rendered again only once one of its props is another: callers give it the same objects and functions again. */
export function memo<Props extends object>(Inner: FunctionComponent<Props>) {
  return class extends Component<Props> {
    override shouldComponentUpdate(next: Props): boolean {
      return !same(this.props, next);
    }

    override render(props: Props): ComponentChildren {
      return <Inner {...props} />;
    }
  };
}

function same<Props extends object>(before: Props, after: Props): boolean {
  const names = Object.keys(after) as (keyof Props)[];
  return names.length === Object.keys(before).length && names.every((name) => before[name] === after[name]);
}
